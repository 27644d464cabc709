SELECT id, UPPER(customer) AS name, amount * 2 AS twice FROM orders WHERE amount > 6
