CREATE VIEW fives AS
SELECT window_start AS s, window_end AS e, window_time AS t, item, SUM(price) AS part
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' MINUTES))
GROUP BY item, window_start, window_end, window_time;
SELECT window_start, window_end, SUM(part) AS total
FROM TABLE(TUMBLE(TABLE fives, DESCRIPTOR(t), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end
