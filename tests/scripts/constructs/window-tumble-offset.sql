SELECT window_start, window_end, window_time, COUNT(*) AS n
FROM TABLE(TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' MINUTES, `OFFSET` => INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, window_time
