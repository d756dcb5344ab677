"""The spool: dead letters that wait for their topics, in the topic `headgate.spool`.

`writer` writes them (with `producer`), and `readers` follows the topic in every worker. In the leader `mover` writes
them to their topics, and `removals` writes their tombstones. `model` has the rules.
"""
