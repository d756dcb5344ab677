"""The spool: dead letters that wait for their topics, in the topic `headgate.spool`.

`writer` writes them (with `producer`), and `readers` follows the topic in every worker. In the leader `mover` decides
what is moved next, `transfer` moves it, `removals` writes the tombstones, `parking` keeps what cannot be moved, and
`deadlines` reports what is late. `model` has the rules.
"""
