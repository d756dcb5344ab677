"""Keeps the facts of one topic of share groups, so that a topic that lost records takes no pause back.

While the topic is read again, what it says is only gathered. At its end the two are compared, key by key:

| the topic has | known before | what holds |
|---|---|---|
| nothing, or that the fact ended | a fact | the known fact; it is lost in the topic |
| a fact | nothing | the topic's |
| a fact | a fact | the later one; a known fact that is later is lost in the topic |
| an earlier trip of the group, by its generation | a trip in force | the known trip, whatever the clocks say |

So a group that was paused stays paused, and one whose resume was lost is paused again: an operator can resume it. Lost
facts are to be written again; a fact of the same key that is read afterwards replaces them.
"""

from collections.abc import Callable, Sequence

from headgate.facts import BreakerTripped, Fact, encode
from headgate.share_groups.model.group_state import ShareGroupFact


class KnownFacts:
    """The last fact of each key of one topic."""

    __slots__ = ("_facts", "_found", "_lost")

    def __init__(self) -> None:
        self._facts: dict[bytes, ShareGroupFact] = {}  # in the order of the topic, without those that ended
        self._found: dict[bytes, ShareGroupFact] | None = None  # while the topic is read again
        self._lost: dict[bytes, ShareGroupFact] = {}

    @property
    def is_read_again(self) -> bool:
        return self._found is not None

    @property
    def facts(self) -> Sequence[ShareGroupFact]:
        return tuple(self._facts.values())

    @property
    def lost(self) -> Sequence[ShareGroupFact]:
        """Facts that hold and are not in the topic, in the order in which they were there."""
        return tuple(self._lost.values())

    def is_lost(self, fact: ShareGroupFact) -> bool:
        return self._lost.get(key_of(fact)) is fact

    def give_up(self, fact: ShareGroupFact) -> None:
        """The fact need not be written again."""
        self._lost.pop(key_of(fact), None)

    def read(self, fact: ShareGroupFact) -> bool:
        """Take in a fact; whether it holds from now on. While the topic is read again, none does."""
        key = key_of(fact)
        if self._found is not None:
            self._found.pop(key, None)
            self._found[key] = fact
            return False
        self._lost.pop(key, None)
        self._keep(key, fact)
        return True

    def begin_again(self) -> None:
        """The topic lost records and is read from its start."""
        self._found = {}

    def drop(self, fact: ShareGroupFact) -> None:
        """The fact does not hold any more."""
        self._facts.pop(key_of(fact), None)
        self.give_up(fact)

    def end_again(self, is_in_force: Callable[[ShareGroupFact], bool] = lambda _: False) -> Sequence[ShareGroupFact]:
        """The end of the topic was reached; returns the facts that hold and were not known before."""
        found, self._found = self._found or {}, None
        new = [
            fact
            for key, fact in found.items()
            if _replaces(fact, known := self._facts.get(key))
            and not (known is not None and _is_earlier_trip(fact, known) and is_in_force(known))
        ]
        for fact in new:
            self._keep(key_of(fact), fact)
        self._lost = {key: fact for key, fact in self._facts.items() if found.get(key) != fact}
        return new

    def forget(self) -> None:
        self._facts.clear()
        self._lost.clear()
        self._found = None

    def _keep(self, key: bytes, fact: ShareGroupFact) -> None:
        self._facts.pop(key, None)
        if isinstance(fact, Fact):
            self._facts[key] = fact


def key_of(fact: ShareGroupFact) -> bytes:
    """The key of its record."""
    return encode(fact)[1]


def _replaces(found: ShareGroupFact, known: ShareGroupFact | None) -> bool:
    if not isinstance(found, Fact):  # it ended, and it is not known whether before or after what is known
        return False
    return not isinstance(known, Fact) or (found != known and found.at >= known.at)


def _is_earlier_trip(found: ShareGroupFact, known: ShareGroupFact) -> bool:
    if not isinstance(found, BreakerTripped) or not isinstance(known, BreakerTripped):
        return False
    return found.generation < known.generation
