SELECT l.id, r.item, COALESCE(l.window_start, r.window_start) AS window_start
FROM (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES))) l
FULL JOIN (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES))) r
ON l.customer = r.bidder AND l.window_start = r.window_start AND l.window_end = r.window_end
