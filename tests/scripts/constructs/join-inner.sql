SELECT o.id, s.place FROM orders o JOIN shipments s ON o.id = s.order_id
