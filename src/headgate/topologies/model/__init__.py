"""The rules of topology descriptions (KIP-1331): pure, without I/O and without a clock."""
