"""The rules of share groups: pure, without I/O and without a clock."""
