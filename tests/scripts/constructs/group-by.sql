SELECT customer, COUNT(*) AS n, SUM(amount) AS total, AVG(amount) AS mean FROM orders
GROUP BY customer HAVING COUNT(*) > 1
