SELECT o.id, s.order_id, s.place FROM orders o FULL OUTER JOIN shipments s ON o.id = s.order_id
