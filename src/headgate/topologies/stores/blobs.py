"""A description as bytes, for stores that keep bytes: the JSON form of `docs/facts.md`, so that people can read it."""

from headgate.facts.json_form import MisfitError, dumps, loads
from headgate.facts.topology import DESCRIPTION, Description, content_hash
from headgate.plugin.topology_store import TransientFailure


def to_bytes(description: Description) -> bytes:
    return dumps(DESCRIPTION.write(description))


def from_bytes(data: bytes) -> Description:
    """What was kept; `TransientFailure` when it is no description: it is shown as an error, and not as nothing."""
    try:
        description = DESCRIPTION.read(loads(data), "description")
    except MisfitError as misfit:
        raise TransientFailure(f"what is stored is no topology description: {misfit}") from None
    assert isinstance(description, Description)
    return description


def checked(description: Description, expected_hash: str) -> Description:
    """The description, if it is what was stored; disks forget, too."""
    if content_hash(description) != expected_hash:
        raise TransientFailure("what is stored is not what was pushed: its content hash is another")
    return description
