SELECT window_start, window_end, item, SUM(price) AS total
FROM TABLE(SESSION(TABLE bids PARTITION BY item, DESCRIPTOR(ts), INTERVAL '5' MINUTES))
GROUP BY window_start, window_end, item
