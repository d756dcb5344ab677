"""The rules of the spool: its records, its index and the routes to it; pure, without I/O and without a clock."""
