SELECT l.id, r.item, l.window_start, l.window_end
FROM (SELECT * FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES))) l
JOIN (SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' MINUTES))) r
ON l.customer = r.bidder AND l.window_start = r.window_start AND l.window_end = r.window_end
