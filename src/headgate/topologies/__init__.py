"""KIP-1331 on a cluster without it: members push their topology descriptions, and admins read them.

Follow a heartbeat: `heartbeat_interceptor` converts it to the broker's version and back, `service` records it, and
`model.streams_groups` decides whether the member is solicited. `push_interceptor`, `describe_interceptor` and
`delete_interceptor` handle the other requests; `stores` has the stores, whose contract is `headgate.plugin`.
"""
