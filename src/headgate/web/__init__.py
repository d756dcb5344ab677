"""The REST interface: a FastAPI application with one router for each resource. It never loads Spark."""
