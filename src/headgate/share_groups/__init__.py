"""Share groups: dead letters (KIP-1191), the circuit breaker (KIP-1316), and the pause that it needs.

A REJECT on its way: `share_interceptor` reads the request, `acknowledgements` finds the rejected records,
`dead_letter_delivery` writes their dead letters with `dead_letter_writer`, or with `spool/writer` while their topic
does not accept them, and then the request is forwarded. The broker's response is counted in `acknowledgements`;
`resources` writes and reads the counts, and `breaker_leader` evaluates them and trips.
"""
