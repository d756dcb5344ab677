"""`[lags]`: how far every group is behind the ends of the topics that it reads.

`poller` reads committed and end offsets once a minute with the requests of `offset_requests`, and writes what has
changed to `headgate.lags`. `docs/lags.md` has the bounds.
"""
