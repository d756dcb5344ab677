"""The command line: the composition root. It may import everything; nothing imports it."""
