"""Kafka's wire format without input and output: bytes to frozen messages and back."""
