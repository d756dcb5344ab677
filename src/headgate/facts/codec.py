"""Facts to records and back: every writer and every reader of a headgate.* topic goes through here.

One rule: `decode` never raises, whatever lies in the topic; `encode` gives the same bytes for the same fact.
"""

from collections.abc import Mapping

from headgate.facts import decisions, descriptions, observations
from headgate.facts.canonical import MisfitError, dumps, loads
from headgate.facts.forms import Ended, Fact, Form, Rejected

# A record's key and value together: far above any fact of the small topics. Readers of `topologies` pass the topic's
# own limit (topics.message_limit).
MAX_FACT_BYTES = 1024 * 1024

FORMS: tuple[Form, ...] = (*decisions.FORMS, *descriptions.FORMS, *observations.FORMS)
_BY_CLASS: Mapping[type[object], Form] = {form.cls: form for form in FORMS}
_BY_TOPIC: Mapping[str, tuple[Form, ...]] = {
    topic: tuple(form for form in FORMS if form.topic == topic) for topic in {form.topic for form in FORMS}
}


def encode(fact: Fact | Ended) -> tuple[str, bytes, bytes | None]:
    """The topic's suffix, the record's key, and its value, which is None when the fact is that something ended."""
    form = _BY_CLASS[type(fact)]
    key, value = form.write(fact)
    return form.topic, dumps(key), None if value is None else dumps(value)


def decode(
    topic: str, key: bytes | None, value: bytes | None, *, max_bytes: int = MAX_FACT_BYTES
) -> Fact | Ended | Rejected:
    """The fact in a record of the topic with this suffix, or why there is none."""
    forms = _BY_TOPIC.get(topic)
    if forms is None:
        return Rejected("no facts are written to this topic")
    if key is None:
        return Rejected("the record has no key")
    size = len(key) + len(value or b"")
    if size > max_bytes:
        return Rejected(f"the record has {size} bytes, and at most {max_bytes} are read")
    try:
        return _decode(forms, key, value)
    except MisfitError as misfit:
        return Rejected(str(misfit))


def _decode(forms: tuple[Form, ...], key: bytes, value: bytes | None) -> Fact | Ended | Rejected:
    try:
        parts = loads(key)
    except MisfitError as misfit:
        return Rejected(f"key: {misfit}")
    if type(parts) is not list:
        return Rejected("key: must be a JSON list")
    for form in forms:
        if form.fits(parts, tombstone=value is None):
            fact: Fact | Ended = form.read(parts, None if value is None else loads(value))
            return fact
    if any(form.fits(parts, tombstone=value is not None) for form in forms):
        return Rejected("the value is null, which means nothing for this key")
    return Rejected("key: no fact of this topic has such a key")


def identity(fact: Fact | Ended) -> tuple[object, ...] | None:
    """What all copies of one fact share and no other fact has; None when its writer did not say.

    Where the last record of a key wins a copy changes nothing, and nobody need ask.
    """
    if isinstance(fact, observations.EventHappened):
        return (fact.cluster, fact.id)
    if isinstance(fact, Ended) or fact.writer is None:
        return None
    return (fact.cluster, fact.writer, fact.boot, fact.seq)
