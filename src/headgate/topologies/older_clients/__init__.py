"""Streams applications whose members do not push: partial descriptions, with provenance `assignment`.

`assignment_topology` makes one from the join of a member of a streams group, `classic_groups` from what the leader of a
group of the classic protocol sees, which `classic_interceptor` watches. `assignment_recorder` decides what is written.
"""
