SELECT o.id, s.place, p.currency FROM orders o, shipments s, payments p
WHERE o.id = s.order_id AND p.id = o.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR
