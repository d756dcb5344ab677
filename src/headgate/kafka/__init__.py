"""Headgate's own dealings with real Kafka: the embedded cluster and the clients of any other."""
