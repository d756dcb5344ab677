"""`[activity]`: which topics every client uses, seen on the wire.

`watching` sees Produce, Fetch and ShareFetch, `groups` the heartbeats of groups; `ledger` knows who is behind them, and
`service` writes it down. `recording` and `coverage` are two more uses of what is seen.
"""
