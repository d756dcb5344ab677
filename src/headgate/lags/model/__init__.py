"""The rules of polling lags: pure, without I/O and without a clock."""
