SELECT l.id, l.window_start
FROM (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES))) l
WHERE l.customer IN (
  SELECT r.bidder FROM (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES))) r
  WHERE l.window_start = r.window_start AND l.window_end = r.window_end)
