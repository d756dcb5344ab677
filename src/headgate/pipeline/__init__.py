"""Turns facts in Kafka into Delta tables, with PySpark. Only the command line imports it."""
