"""Text of SQL as tokens with their places: what the reader of statements and that of queries have in common."""
