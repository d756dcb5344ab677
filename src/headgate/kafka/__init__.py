"""Headgate's own Kafka clients: connections, group requests, readers and writers of its topics, leader election."""
