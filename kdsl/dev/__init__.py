"""`kdsl dev`: a local Kafka with the topics of declarations, and sample rows in them."""
