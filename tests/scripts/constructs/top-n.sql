SELECT item, bidder, price, n FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) AS n FROM bids) WHERE n <= 2
