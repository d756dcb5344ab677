"""What the facts say, as Delta tables: their definitions, the one writer of each, and readers without Spark."""
