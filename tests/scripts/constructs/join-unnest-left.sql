SELECT b.id, u.item, u.price FROM baskets b LEFT JOIN UNNEST(b.prices) AS u (item, price) ON TRUE
