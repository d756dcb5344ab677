"""KIP-1331 on a cluster that does not have it: a member is asked for its topology, pushes it, and admins read it.

Follow a heartbeat: `heartbeats` brings it to the broker's version and back, `service` notes what it means and decides
by `domain.streams_groups` whether the member is asked. `pushes`, `describes` and `deletions` are the other calls.
"""
