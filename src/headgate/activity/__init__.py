"""`[activity]`: which topics every client uses, as seen on the wire, and the active topics of connectors (KIP-558).

`interceptors` watch the requests, `usage_tracker` adds up their uses, and `service` writes them to
`headgate.activity`.
"""
