SELECT id, amount FROM orders ORDER BY amount DESC LIMIT 3
