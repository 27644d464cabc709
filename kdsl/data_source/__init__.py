"""The data source ``kdsl`` with options that people write, without the operations of a table."""
