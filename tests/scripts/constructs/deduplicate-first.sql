SELECT item, bidder, price FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY ts ASC) AS n FROM bids) WHERE n = 1
