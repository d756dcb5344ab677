"""Delta tables of the facts: their definitions, a reader and a writer. No Spark."""
