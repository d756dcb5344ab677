"""The page and the REST interface: a FastAPI application, one router a resource. It never loads Spark."""
