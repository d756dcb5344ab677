"""The definition of a table: its name, columns, key, meaning, and how it is stored.

A definition says what a table holds; how its rows are made is the pipeline's part. Readers and writers know nothing of
a table but its definition.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headgate.facts import Fact
from headgate.facts.codec import COMMON_FIELDS, flat_members, form_of, spark_type
from headgate.facts.json_form import Counts, Member, Nullable, OneOf, Time

CLUSTER_ID = "cluster_id"
BUCKET = "bucket"
WRITTEN_BY = "a pipeline writes it within two minutes of its start (`headgate pipeline run`)"  # of a missing table

_COMMENT = "comment"  # Delta's own name for the meaning of a column
_UNIT = "headgate.unit"  # of a column of times; not stored
_VERSION = "headgate.table.version"


def text(name: str, meaning: str, *, null: bool = False) -> pa.Field:
    return _column(name, pa.string(), meaning, null=null)


def whole(name: str, meaning: str, *, null: bool = False) -> pa.Field:
    """A whole number in 64 bits: offsets, counts."""
    return _column(name, pa.int64(), meaning, null=null)


def small(name: str, meaning: str, *, null: bool = False) -> pa.Field:
    """A whole number in 32 bits: epochs, partitions."""
    return _column(name, pa.int32(), meaning, null=null)


def fraction(name: str, meaning: str, *, null: bool = False) -> pa.Field:
    """A number from 0 to 1, in 64 bits."""
    return _column(name, pa.float64(), meaning, null=null)


def time(name: str, meaning: str, *, null: bool = False, unit: str = "milliseconds") -> pa.Field:
    """A time, as a whole number of milliseconds or seconds since the epoch."""
    return _column(name, pa.int64(), meaning, null=null, unit=unit)


def flag(name: str, meaning: str) -> pa.Field:
    return _column(name, pa.bool_(), meaning, null=False)


def _column(name: str, kind: pa.DataType, meaning: str, *, null: bool, unit: str = "") -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={_COMMENT: meaning} | ({_UNIT: unit} if unit else {}))


def fact_columns(fact: type[Fact], paths: Mapping[str, str]) -> dict[str, pa.Field]:
    """A column for each field of a fact but the common ones, by the field's path in the record.

    A column has the attribute's name, unless `paths` gives it another.
    """
    members = ((path, member) for path, member in flat_members(form_of(fact)) if path not in {"at", *COMMON_FIELDS})
    return {path: _fact_column(paths.get(path, member.attribute), member) for path, member in members}


def _fact_column(name: str, member: Member) -> pa.Field:
    null = isinstance(member.type, Nullable)
    kind = member.type.item if isinstance(member.type, Nullable) else member.type
    match kind:
        case Time():
            return time(name, member.meaning, null=null, unit=kind.unit)
        case OneOf():
            return text(name, f"{member.meaning}: {', '.join(kind.names[:-1])} or {kind.names[-1]}", null=null)
        case Counts():
            return text(name, f"{member.meaning}; a JSON object", null=null)
        case _:
            column = {"string": text, "int": small, "bigint": whole}[spark_type(kind)]
            return column(name, member.meaning, null=null)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table. `version` is that of its schema and rises with every change of columns or key.

    A table that may exceed 10^5 rows has `buckets`: a partition column beside its columns, the hash of the `bucket_by`
    columns, so that a small batch touches few files. These columns are part of the key, and rows that change together
    share them. A table that only grows is `appended`: it may hold copies of a row, which readers leave out. Where each
    row is one fact, `facts` has the columns that come from it, by the field's path in the record. Rows whose `at` is
    longer ago than `kept_ms` are deleted when the table is optimized; without it they stay.
    """

    name: str
    description: str
    question: str
    columns: pa.Schema
    key: tuple[str, ...]
    version: int = 1
    buckets: int = 0
    bucket_by: tuple[str, ...] = ()
    appended: bool = False
    facts: Mapping[str, pa.Field] = field(default_factory=dict)
    kept_ms: int | None = None

    def __post_init__(self) -> None:
        fields = {column.name: column for column in self.columns}
        if self.key[:1] != (CLUSTER_ID,):
            raise ValueError(f"{self.name}: the key begins with {CLUSTER_ID}")
        if not all(name in fields and not fields[name].nullable for name in self.key):
            raise ValueError(f"{self.name}: the key is made of columns that are never null")
        if bool(self.buckets) != bool(self.bucket_by) or not set(self.bucket_by) <= set(self.key) or BUCKET in fields:
            raise ValueError(f"{self.name}: buckets are the hash of columns of the key")
        if self.appended and self.buckets:
            raise ValueError(f"{self.name}: an appended table has no buckets, because its rows are never looked up")

    @property
    def has_validity(self) -> bool:
        """Whether its rows have a validity, so that it can be read as of a time."""
        return "valid_from" in self.columns.names

    @property
    def validity_is_time(self) -> bool:
        """Whether `valid_from` and `valid_to` are times; else they are offsets in the facts' topic."""
        return self.has_validity and time_unit(self.columns.field("valid_from")) is not None

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns as they are stored. The first carries the version, so that both change in one commit."""
        fields = [column.with_metadata({_COMMENT: meaning(column)}) for column in self.columns]
        fields[0] = fields[0].with_metadata({_COMMENT: meaning(fields[0]), _VERSION: str(self.version)})
        if self.buckets:
            fields.append(pa.field(BUCKET, pa.int32(), nullable=False))
        return pa.schema(fields)

    @property
    def partition_columns(self) -> list[str]:
        return [BUCKET] if self.buckets else []

    def bucket(self, values: tuple[object, ...]) -> int:
        """The bucket of a row with these values of `bucket_by`. It never changes, because rows are looked up by it."""
        spelled = "".join(f"{len(part)}:{part}" for part in map(str, values))
        return zlib.crc32(spelled.encode()) % self.buckets


def id_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that hold topic ids."""
    return tuple(name for name in schema.names if name.endswith("topic_id"))


def stored_version(schema: pa.Schema) -> str | None:
    """The version of a stored schema; None when it is not a table of Headgate."""
    metadata = schema.field(0).metadata if len(schema) else None
    version: bytes | None = (metadata or {}).get(_VERSION.encode())
    return None if version is None else version.decode()


def meaning(column: pa.Field) -> str:
    comment: bytes = column.metadata[_COMMENT.encode()]
    return comment.decode()


def time_unit(column: pa.Field) -> str | None:
    """`milliseconds` or `seconds` for a column of times, None for any other."""
    unit: bytes | None = column.metadata.get(_UNIT.encode())
    return None if unit is None else unit.decode()
