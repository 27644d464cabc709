SELECT item, bidder, price FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY ts DESC) AS n FROM bids) WHERE n = 1
