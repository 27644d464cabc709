CREATE VIEW big (number, who) AS SELECT id, customer FROM orders WHERE amount >= 20;
SELECT who, number FROM big
