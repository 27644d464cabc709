WITH big AS (SELECT id, customer FROM orders WHERE amount >= 20) SELECT customer, id FROM big
