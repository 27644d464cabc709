SELECT o.id, s.place FROM orders o RIGHT JOIN shipments s
ON o.id = s.order_id AND o.ts BETWEEN s.ts - INTERVAL '4' HOUR AND s.ts
