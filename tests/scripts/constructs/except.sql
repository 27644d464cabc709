SELECT bidder FROM bids EXCEPT SELECT customer FROM orders WHERE amount > 9
