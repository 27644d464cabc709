SELECT o.id, s.order_id, s.place FROM orders o FULL JOIN shipments s
ON o.id = s.order_id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR
