"""Share groups: dead letters (KIP-1191), the circuit breaker (KIP-1316), and the pause that it needs.

Follow one acknowledgement: `fetches` and `acknowledges` read the calls, `acks` says what each means, `letters` writes
what was rejected, the answer is counted in `acks`, and `judging` reads the counts back and trips.
"""
