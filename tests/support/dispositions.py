"""Counts of dispositions for tests that need some, whatever they are."""

from headgate.facts import DispositionsCounted


def one_accepted(second: int, group: str = "g") -> DispositionsCounted:
    """Member m of the group accepted one record in this second."""
    return DispositionsCounted(
        at=1,
        group=group,
        member="m",
        topic=None,
        topic_id=None,
        partition=0,
        second=second,
        generation=0,
        accepted=1,
        released=0,
        rejected=0,
        over_limit=0,
        dead_lettered=0,
        write_timeouts=0,
        by_delivery_count=(),
    )
