SELECT b.id, u.item FROM baskets b CROSS JOIN UNNEST(b.items) AS u (item)
