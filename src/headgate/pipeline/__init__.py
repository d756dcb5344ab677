"""Facts in Kafka become Delta tables: PySpark, and only here. Nothing but the command line imports it."""
