SELECT customer FROM orders UNION SELECT bidder FROM bids
