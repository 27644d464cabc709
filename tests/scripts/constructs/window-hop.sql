SELECT window_start, window_end, item, MAX(price) AS best
FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, item
