SELECT item, bidder, SUM(price) AS total FROM bids GROUP BY ROLLUP (item, bidder)
