"""Which tables lack rows because another release has read their records: a file beside the checkpoint of each query.

A release writes the tables that it knows. A table that came later has nothing of the records that were read before, and
the checkpoint does not bring them again. So `QUERY.tables.json` names the tables that were written, and the last batch
in which they were. Batches after that one are of a release that has no such file, and wrote `_BEFORE` alone: the one
before an upgrade, or one that was returned to.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from headgate.base.errors import ClusterError
from headgate.base.locations import Location
from headgate.facts.codec import FORMS
from headgate.pipeline.builds import Build
from headgate.pipeline.fact_rows import REJECTED
from headgate.pipeline.source_topics import SourceTopics, checkpoint_id, last_batch
from headgate.tables.files import read_file, write_file

# The tables of releases that have no such file. A table has a higher form when its rows have changed since then.
_BEFORE: Final[Mapping[str, int]] = dict.fromkeys(
    (
        "activity_intervals",
        "app_io",
        "applications",
        "changes",
        "dispositions",
        "members_tasks",
        "rejected_facts",
        "topology_edges",
        "topology_nodes",
        "topology_versions",
    ),
    1,
)
_FORMS: Final = {"app_io": 2}  # with pairs without topics


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The content of the file: forms of tables by name, and the tables that lack rows."""

    checkpoint: str | None
    batch: int
    tables: Mapping[str, int]
    missing: Sequence[str] = field(default=())


class KnownTables:
    """The tables of one query, whose builds these are; used on the thread of the query."""

    def __init__(self, checkpoint: Location, builds: Mapping[str, Build], prefix: str) -> None:
        self._checkpoint = checkpoint
        self._builds = builds
        self._prefix = prefix
        self._file = checkpoint.with_name(f"{checkpoint.name}.tables.json")
        self._id: str | None = None

    def find_missing(self, sources: SourceTopics) -> list[str]:
        """Before the query starts: the tables that lack rows of records that were read."""
        kept = self._read()
        read = sources.read_before()
        checkpoint, batch = checkpoint_id(self._checkpoint), last_batch(self._checkpoint)
        missing: set[str] = set()
        if read:
            tables: Mapping[str, int] = _BEFORE
            if kept is not None and (batch < 0 or (checkpoint == kept.checkpoint and batch <= kept.batch)):
                tables = kept.tables
            new = {name for name in self._builds if tables.get(name, 0) < _FORMS.get(name, 1)}
            missing = {name for name in new if not read.keys().isdisjoint(self._topics(name))}
            missing |= set() if kept is None else set(kept.missing)
        self._keep(_Written(checkpoint=checkpoint, batch=batch, tables=self._forms(), missing=sorted(missing)))
        return sorted(missing & self._builds.keys())

    def on_batch(self, batch: int) -> None:
        """All tables have the rows of this batch."""
        kept = self._read()
        if self._id is None:
            self._id = checkpoint_id(self._checkpoint)
        missing = () if kept is None else kept.missing
        self._keep(_Written(checkpoint=self._id, batch=batch, tables=self._forms(), missing=missing))

    def on_rebuilt(self, name: str, sources: SourceTopics) -> None:
        """The table has all rows whose records the topics retain."""
        self.find_missing(sources)  # before the first start of this release, too
        kept = self._read()
        if kept is not None:
            self._keep(replace(kept, missing=[one for one in kept.missing if one != name]))

    def _forms(self) -> dict[str, int]:
        return {name: _FORMS.get(name, 1) for name in self._builds}

    def _topics(self, name: str) -> Collection[str]:
        kinds = self._builds[name].kinds
        return {self._prefix + form.topic for form in FORMS if REJECTED in kinds or form.cls.__name__ in kinds}

    def _read(self) -> _Written | None:
        try:
            return _Written(**json.loads(read_file(self._file)))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise ClusterError(
                f"{self._file} is damaged: remove it, and tables that may lack rows are reported again"
            ) from None

    def _keep(self, written: _Written) -> None:
        write_file(self._file, json.dumps(asdict(written)))


def missing_text(table: str) -> str:
    """The problem of `pipeline_runs`."""
    return (
        f"the table {table} lacks rows of records that another release has read: `headgate pipeline rebuild {table}` "
        "adds those whose records the topics still retain"
    )
