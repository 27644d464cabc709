CREATE VIEW versions AS SELECT currency, rate, ts
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY ts DESC) AS n FROM rates) WHERE n = 1;
SELECT p.id, p.amount * v.rate AS total FROM payments AS p
JOIN versions FOR SYSTEM_TIME AS OF p.ts AS v ON p.currency = v.currency
