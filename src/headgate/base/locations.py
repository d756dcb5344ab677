"""Where files are: a folder of this machine, or a prefix in a bucket of an object store that speaks S3.

A prefix is used like a `Path`: `root / "changes"` is what lies beneath it. It carries the options of its store, which
hold secrets, so neither `str` nor `repr` shows them.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

_SCHEME: Final = "s3://"
_ANY_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# The characters that every library on the way writes the same in a path, a URL and a pattern.
_PART: Final = re.compile(r"[A-Za-z0-9._=-]+")
_MAX_KEY: Final = 512  # of 1,024 that a key may have: the rest is for the files of tables


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """A prefix in a bucket, or one object; `options` are those of the store, by the names of AWS's variables."""

    bucket: str
    parts: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def key(self) -> str:
        return "/".join(self.parts)

    @property
    def name(self) -> str:
        return self.parts[-1]

    @property
    def parent(self) -> "ObjectLocation":
        return replace(self, parts=self.parts[:-1])

    def with_name(self, name: str) -> "ObjectLocation":
        return self.parent / name

    def with_options(self, options: tuple[tuple[str, str], ...]) -> "ObjectLocation":
        return replace(self, options=options)

    def absolute(self) -> "ObjectLocation":
        return self

    def __truediv__(self, beneath: str) -> "ObjectLocation":
        return replace(self, parts=(*self.parts, *beneath.split("/")))

    def __str__(self) -> str:
        return f"{_SCHEME}{self.bucket}/{self.key}"


Location: TypeAlias = Path | ObjectLocation


def parse_location(value: object) -> Location:
    """A folder, or `s3://BUCKET/PREFIX`; the text of the `ValueError` does not repeat the value."""
    if isinstance(value, Path | ObjectLocation):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("must be a folder or s3://BUCKET/PREFIX, as text")
    if not _ANY_SCHEME.match(value):
        return Path(value)
    if not value.startswith(_SCHEME):
        raise ValueError("must be a folder or s3://BUCKET/PREFIX: no other scheme is known")
    bucket, _, key = value.removeprefix(_SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError("must name a bucket after s3://: 3 to 63 lower-case letters, digits, '.' and '-'")
    parts = tuple(key.removesuffix("/").split("/"))
    if len(key) > _MAX_KEY or not all(_PART.fullmatch(part) and part not in {".", ".."} for part in parts):
        raise ValueError(
            f"must have a prefix after the bucket, such as s3://lake/headgate: at most {_MAX_KEY} letters, digits, "
            "'.', '_', '=' and '-', with single slashes"
        )
    return ObjectLocation(bucket, parts)
