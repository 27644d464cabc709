SELECT id, customer FROM orders WHERE id IN (SELECT order_id FROM shipments)
