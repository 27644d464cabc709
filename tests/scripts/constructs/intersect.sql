SELECT customer FROM orders INTERSECT SELECT bidder FROM bids
