"""A fact of `headgate.activity` with as little in it as there can be; a test replaces what it is about."""

from headgate.facts import ActivityObserved, Actor

USE = ActivityObserved(
    at=1,
    actor=Actor(kind="client", name="a", rule="test", confidence="guess"),
    topic="orders",
    topic_id=None,
    direction="read",
    since=1,
    until=2,
    bytes=3,
    records=None,
    principal=None,
    client_id=None,
    group=None,
    transactional_id=None,
    software=None,
    host=None,
)
