"""What all facts share: their common fields, and the form that ties a dataclass to a topic, a key and a value.

Version rules, which readers and writers of several releases live by side by side:

- `v` is the version of a fact's schema. What this release writes and the highest that it reads is `Form.version`.
- Within a version only fields that may be absent are added. A reader keeps fields that it does not know, and writes
  them back.
- Anything else raises `v`: a field that goes, changes its type or its meaning, and a new name in a closed set.
- A higher `v` is rejected, never half understood. So a release that reads a new version comes before the one that
  writes it.
"""

from dataclasses import dataclass
from typing import Any

from headgate.facts.canonical import MisfitError
from headgate.facts.shapes import Extra, Member, Nullable, Struct, Text, Whole

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact that has a value. `at` is when it became so, in epoch milliseconds, by the writer's clock.

    `cluster` is the cluster that it is about. `writer` (gateway/worker), `boot` (one life of that process) and `seq`
    (counted within it) come together; with them a duplicate is recognised wherever it turns up. Headgate's writers
    fill all four; a reader accepts facts without them.
    """

    at: int
    cluster: str | None = None
    writer: str | None = None
    boot: str | None = None
    seq: int | None = None
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A fact whose value is null: what the key said is over, and compaction forgets the key in time."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Bytes that are no fact that this release knows, and why. It is a value: a bad record stops no reader."""

    reason: str


AT = Member("at", Whole())
BY = Member("by", Text())
GROUP = Member("group", Text())
CLUSTER = Member("cluster", Nullable(Text()), omit=True)
ORIGIN = (
    Member("writer", Nullable(Text()), omit=True),
    Member("boot", Nullable(Text()), omit=True),
    Member("seq", Nullable(Whole()), omit=True),
)
COMMON = (CLUSTER, *ORIGIN)


@dataclass(frozen=True, slots=True)
class Form:
    """How a fact of class `cls` lies in the topic with this suffix.

    A key's part is a constant text or the member that it holds; `value` None is a tombstone.
    """

    cls: type[Any]
    topic: str
    key: tuple[str | Member, ...]
    value: tuple[Member, ...] | None
    version: int = VERSION

    def fits(self, key: list[Any], *, tombstone: bool) -> bool:
        """Whether these key parts are this form's, by their number and the constants among them."""
        return (
            len(key) == len(self.key)
            and tombstone == (self.value is None)
            and all(isinstance(part, Member) or part == raw for part, raw in zip(self.key, key, strict=True))
        )

    def read(self, key: list[Any], value: Any) -> Any:
        found: dict[str, Any] = {
            part.target: part.kind.read(raw, f"key[{index}]")
            for index, (part, raw) in enumerate(zip(self.key, key, strict=True))
            if isinstance(part, Member)
        }
        if self.value is None:
            return self.cls(**found)
        if type(value) is not dict:
            raise MisfitError("the value must be an object")
        self._check_version(value)
        fields = Struct(self.cls, self.value).attributes(value, "", ("v",))
        for name, of_key in found.items():
            if fields.setdefault(name, of_key) != of_key:
                raise MisfitError(f"key and value disagree about {name}")
        if len({fields[member.target] is None for member in ORIGIN}) > 1:
            raise MisfitError("writer, boot and seq come together")
        return self.cls(**fields)

    def _check_version(self, value: dict[str, Any]) -> None:
        version = value.get("v")
        if type(version) is not int or version < 1:
            raise MisfitError("v must be a schema version, a whole number from 1")
        if version > self.version:
            raise MisfitError(f"v is a schema version above {self.version}, the newest known: upgrade this reader")

    def write(self, fact: Any) -> tuple[list[Any], dict[str, Any] | None]:
        key = [part.kind.write(getattr(fact, part.target)) if isinstance(part, Member) else part for part in self.key]
        if self.value is None:
            return key, None
        return key, {"v": self.version} | Struct(self.cls, self.value).write(fact)
