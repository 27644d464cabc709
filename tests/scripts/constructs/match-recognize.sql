SELECT t.first_price, t.last_price FROM bids MATCH_RECOGNIZE (
  PARTITION BY item ORDER BY ts MEASURES a.price AS first_price, b.price AS last_price
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (a b) DEFINE b AS b.price < a.price) AS t
