"""One file a table, each with its `TABLE`. Adding a file here is adding a table."""
