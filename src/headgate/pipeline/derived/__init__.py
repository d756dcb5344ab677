"""Tables that are derived from other tables. No Kafka."""
