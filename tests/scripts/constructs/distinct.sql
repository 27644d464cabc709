SELECT DISTINCT customer FROM orders
