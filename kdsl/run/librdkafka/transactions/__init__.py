"""Exactly-once: transactions with the records of a batch and a token that identifies the batch."""
