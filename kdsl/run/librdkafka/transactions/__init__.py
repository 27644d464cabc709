"""Exactly-once: transactions that hold a batch's records and a token that says which batch it was."""
