SELECT id, customer FROM orders UNION ALL SELECT order_id, place FROM shipments
