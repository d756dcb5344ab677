"""Which member of a Streams group has which tasks, in the topic `headgate.tasks`.

`task_watch` follows streams groups by describes and heartbeats, `classic_tasks` groups of the classic protocol;
`group_tasks` compares with what was written, so that only changes are.
"""
