SELECT COUNT(DISTINCT customer) AS customers, COUNT(*) FILTER (WHERE amount > 9) AS big FROM orders
