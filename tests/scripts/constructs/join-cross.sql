SELECT o.id, r.currency FROM orders o CROSS JOIN (VALUES ('EUR'), ('YEN')) AS r (currency)
