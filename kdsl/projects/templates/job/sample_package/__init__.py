"""A streaming job over the topic sample-topic."""
