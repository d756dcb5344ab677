"""The rules of topic usage: pure, without I/O and without a clock."""
