SELECT o.id, o.ts, s.ts AS shipped, s.place FROM orders o, shipments s
WHERE o.id = s.order_id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR
