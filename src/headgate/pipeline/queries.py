"""The queries of the pipeline: which topics each reads, how much at a time, and which tables it writes.

One rule: a topic belongs to one query. The small topics are reduced and upserted, because a fact there ends another;
the large ones are appended, because a fact there is never changed.
"""

from dataclasses import dataclass

from headgate.facts.codec import FORMS
from headgate.pipeline.builds import Build, all_builds
from headgate.pipeline.parsing import REJECTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """`suffixes` are those of its topics; `most_offsets` bounds one batch."""

    name: str
    suffixes: tuple[str, ...]
    most_offsets: int

    @property
    def own_kinds(self) -> frozenset[str]:
        """The facts that its topics hold."""
        return frozenset(form.cls.__name__ for form in FORMS if form.topic in self.suffixes)

    def topics(self, prefix: str) -> tuple[str, ...]:
        return tuple(prefix + suffix for suffix in self.suffixes)

    def builds(self) -> dict[str, Build]:
        """Those of the tables that are made of its facts, or of what lies in its topics and is none."""
        kinds = self.own_kinds | {REJECTED}
        return {name: build for name, build in all_builds().items() if build.kinds & kinds}


FACTS = Query(name="facts", suffixes=("events", "state", "topologies"), most_offsets=5_000)
APPEND = Query(name="append", suffixes=("activity", "dispositions"), most_offsets=100_000)
QUERIES = (FACTS, APPEND)
