"""What a table is: its columns, its key and what it means.

One rule: a definition says what a table holds and never how a row comes about; that is the pipeline's. Readers and
writers know of a table only what stands in its definition.
"""

import zlib
from dataclasses import dataclass

import pyarrow as pa

CLUSTER_ID = "cluster_id"
BUCKET = "bucket"

_COMMENT = "comment"  # Delta's own name for what a column means
_VERSION = "headgate.table.version"


def text(name: str, meaning: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, pa.string(), nullable=null, metadata={_COMMENT: meaning})


def whole(name: str, meaning: str, *, null: bool = False) -> pa.Field:
    """A whole number in 64 bits: offsets, counts, times in epoch milliseconds."""
    return pa.field(name, pa.int64(), nullable=null, metadata={_COMMENT: meaning})


def small(name: str, meaning: str, *, null: bool = False) -> pa.Field:
    """A whole number in 32 bits: epochs, partitions."""
    return pa.field(name, pa.int32(), nullable=null, metadata={_COMMENT: meaning})


def flag(name: str, meaning: str) -> pa.Field:
    return pa.field(name, pa.bool_(), nullable=False, metadata={_COMMENT: meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table. `version` is that of its schema: it rises with every change of columns or key.

    A table that may pass 10^5 rows has `buckets`: a partition column beside its columns, the hash of the `bucket_by`
    columns, so that a small batch touches few files. They are part of the key, and rows that change together share
    them. One that only grows is `appended`: a row may lie in it twice, and readers leave the copy out.
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

    def __post_init__(self) -> None:
        fields = {field.name: field for field in self.columns}
        if self.key[:1] != (CLUSTER_ID,):
            raise ValueError(f"{self.name}: the key begins with {CLUSTER_ID}")
        if not all(name in fields and not fields[name].nullable for name in self.key):
            raise ValueError(f"{self.name}: the key is made of columns that are never null")
        if bool(self.buckets) != bool(self.bucket_by) or not set(self.bucket_by) <= set(self.key) or BUCKET in fields:
            raise ValueError(f"{self.name}: buckets are the hash of columns of the key")
        if self.appended and self.buckets:
            raise ValueError(f"{self.name}: what is appended is not looked for, so it has no buckets")

    @property
    def has_validity(self) -> bool:
        """Whether it can be asked what was so at some time."""
        return "valid_from" in self.columns.names

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns as they are stored. The version stands in the first, and changes with them in one commit."""
        first, *others = self.columns
        fields = [first.with_metadata({**(first.metadata or {}), _VERSION: str(self.version)}), *others]
        if self.buckets:
            fields.append(pa.field(BUCKET, pa.int32(), nullable=False))
        return pa.schema(fields)

    @property
    def partition_columns(self) -> list[str]:
        return [BUCKET] if self.buckets else []

    def bucket(self, values: tuple[object, ...]) -> int:
        """The bucket of a row with these values of `bucket_by`; for ever the same, as rows are looked for in it."""
        spelled = "".join(f"{len(part)}:{part}" for part in map(str, values))
        return zlib.crc32(spelled.encode()) % self.buckets


def id_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that hold ids of topics."""
    return tuple(name for name in schema.names if name.endswith("topic_id"))


def stored_version(schema: pa.Schema) -> str | None:
    """The version of a stored schema; None when this is no table of ours."""
    metadata = schema.field(0).metadata if len(schema) else None
    version: bytes | None = (metadata or {}).get(_VERSION.encode())
    return None if version is None else version.decode()


def meaning(field: pa.Field) -> str:
    comment: bytes = field.metadata[_COMMENT.encode()]
    return comment.decode()
