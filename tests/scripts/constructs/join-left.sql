SELECT o.id, s.place FROM orders o LEFT JOIN shipments s ON o.id = s.order_id
