"""Objects of an S3-compatible store: read, write, list, and create only what is absent.

Errors are a `PlatformError` without credentials, but for an absent object, which is a `FileNotFoundError` like an
absent file. A store counts as fit for tables only when it refuses to create an object that exists, and to replace one
that has changed: without that, two writers of a table overwrite each other's commits, or two pipelines have one lock.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import PlatformError, UsageError
from headgate.base.locations import ObjectLocation

if TYPE_CHECKING:
    from obstore.store import S3Store

CONNECT_S: Final = 5
REQUEST_S: Final = 30
RETRIES: Final = 3
RETRY_S: Final = 20
_SECRET_OPTIONS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_MOST_WORDS: Final = 400
_LISTED_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object of a listing: its path in the bucket, its size, its ETag, and when it was written."""

    key: str
    size: int
    etag: str
    written_ms: int


def delta_options(location: ObjectLocation) -> dict[str, str]:
    """The storage options of deltalake: those of the store, and bounds of time."""
    return {
        **dict(location.options),
        "connect_timeout": f"{CONNECT_S}s",
        "timeout": f"{REQUEST_S}s",
        "max_retries": str(RETRIES),
        "retry_timeout": f"{RETRY_S}s",
    }


def read_object(location: ObjectLocation, *, within_s: float | None = None) -> tuple[bytes, str]:
    """The content and the ETag; `FileNotFoundError` without the object. `within_s` bounds the one try in time."""
    import obstore  # noqa: PLC0415 - only where tables are on an object store

    with translate_store_errors(location):
        found = obstore.get(store_of(location, within_s=within_s), location.key)
        return bytes(found.bytes()), found.meta["e_tag"] or ""


def put_object(location: ObjectLocation, content: bytes) -> str:
    """Write an object whole, over an existing one; returns its ETag."""
    import obstore  # noqa: PLC0415

    with translate_store_errors(location, is_written=True):
        return str(obstore.put(store_of(location), location.key, content)["e_tag"] or "")


def create_object(location: ObjectLocation, content: bytes) -> str | None:
    """Write an object that does not exist yet, and return its ETag; None when there is one."""
    import obstore  # noqa: PLC0415
    from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

    with translate_store_errors(location, is_written=True):
        try:
            return str(obstore.put(store_of(location), location.key, content, mode="create")["e_tag"] or "")
        except AlreadyExistsError:
            return None


def replace_object(location: ObjectLocation, content: bytes, etag: str, *, within_s: float | None = None) -> str | None:
    """Write an object over the one with this ETag, and return the new one; None when it has changed or is gone.

    `within_s` bounds the one try in time.
    """
    import obstore  # noqa: PLC0415
    from obstore.exceptions import NotFoundError, PreconditionError  # noqa: PLC0415

    with translate_store_errors(location):
        try:
            store = store_of(location, within_s=within_s)
            return str(obstore.put(store, location.key, content, mode={"e_tag": etag})["e_tag"] or "")
        except (PreconditionError, NotFoundError):
            return None


def has_object(location: ObjectLocation) -> bool:
    import obstore  # noqa: PLC0415

    with translate_store_errors(location):
        try:
            obstore.head(store_of(location), location.key)
        except FileNotFoundError:
            return False
        return True


def names_beneath(location: ObjectLocation) -> list[str]:
    """The names of what lies directly beneath this prefix."""
    import obstore  # noqa: PLC0415

    with translate_store_errors(location):
        found = obstore.list_with_delimiter(store_of(location), location.key)
    paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
    names = {path.removeprefix(f"{location.key}/").strip("/") for path in paths}
    return sorted(names - {""})


def objects_beneath(location: ObjectLocation, *, after: str | None = None) -> Iterator[StoredObject]:
    """All objects beneath this prefix; `after` leaves out those whose name there does not come after it."""
    import obstore  # noqa: PLC0415

    offset = None if after is None else f"{location.key}/{after}"
    with translate_store_errors(location):
        listing = obstore.list(store_of(location), location.key, offset=offset, chunk_size=_LISTED_AT_ONCE)
        for chunk in listing:
            for one in chunk:
                yield StoredObject(
                    key=one["path"],
                    size=one["size"],
                    etag=one["e_tag"] or "",
                    written_ms=int(one["last_modified"].timestamp() * 1000),
                )


def delete_objects(location: ObjectLocation, keys: Sequence[str], *, within_s: float | None = None) -> None:
    """Delete these objects of the location's bucket; absent ones are no error. `within_s` bounds the one try."""
    import obstore  # noqa: PLC0415

    with translate_store_errors(location), suppress(FileNotFoundError):
        if keys:
            obstore.delete(store_of(location, within_s=within_s), list(keys))


# --- one store, and its errors ----------------------------------------------------------------------------------------


def store_of(location: ObjectLocation, *, within_s: float | None = None) -> "S3Store":
    """The store; with `within_s` one whose requests are tried once, and end within this time."""
    return _store(location.bucket, location.options, within_s)


@lru_cache(maxsize=16)
def _store(bucket: str, options: tuple[tuple[str, str], ...], within_s: float | None) -> "S3Store":
    try:
        from obstore.store import S3Store  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise PlatformError(f"{missing.name} is not installed: pip install 'headgate[pipeline]'") from None
    named: Any = {name.lower(): value for name, value in options if name != "AWS_ALLOW_HTTP"}
    return S3Store(
        bucket,
        config=named,
        client_options={
            "allow_http": dict(options).get("AWS_ALLOW_HTTP") == "true",
            "connect_timeout": timedelta(seconds=CONNECT_S if within_s is None else min(CONNECT_S, within_s)),
            "timeout": timedelta(seconds=REQUEST_S if within_s is None else within_s),
        },
        retry_config={
            "max_retries": RETRIES if within_s is None else 0,
            "retry_timeout": timedelta(seconds=RETRY_S if within_s is None else within_s),
        },
    )


@contextmanager
def translate_store_errors(location: ObjectLocation, *, is_written: bool = False) -> Iterator[None]:
    """Turn errors of the store into a `PlatformError`; the absence of an object that is read passes."""
    try:
        yield
    except FileNotFoundError:
        if is_written:
            raise PlatformError(f"{location}: there is no bucket {location.bucket}: create it") from None
        raise FileNotFoundError(f"{location}: no such object") from None
    except Exception as failure:
        if not type(failure).__module__.startswith("obstore") and not isinstance(failure, OSError):
            raise
        first = str(failure).partition("\n\nDebug source")[0]
        words = without_secrets(" ".join(first.split()), location)
        raise PlatformError(f"{location}: the object store cannot be used: {words}") from None


def without_secrets(words: str, location: object) -> str:
    """The text of a library, without the credentials of this location, and not endless."""
    if isinstance(location, ObjectLocation):
        for name, value in location.options:
            if name in _SECRET_OPTIONS:
                words = words.replace(value, f"<{name}>")
        words = words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}..."
    return words


# --- conditional writes -----------------------------------------------------------------------------------------------

_known_to_refuse: set[tuple[str, tuple[tuple[str, str], ...]]] = set()


def check_conditional_writes(location: ObjectLocation) -> None:
    """`UsageError` unless the store refuses to create an object that exists, and to replace one by an older ETag.

    Tried once in a process.
    """
    store = (location.bucket, location.options)
    if store in _known_to_refuse:
        return
    probe = location / f"headgate-probe-{uuid.uuid4().hex}"
    try:
        created, again = create_object(probe, b"first"), create_object(probe, b"second")
        current = put_object(probe, b"third")
        replaced_old = created is not None and replace_object(probe, b"fourth", created) is not None
        replaced = not replaced_old and replace_object(probe, b"fifth", current) is not None
    finally:
        with suppress(PlatformError):  # the error of the creation says more
            delete_objects(probe, [probe.key])
    if created is None or again is not None:
        raise UsageError(
            f"{location}: the object store does not honour If-None-Match, so two writers of a table would overwrite "
            "each other's commits: use one that has conditional writes"
        )
    if replaced_old or not replaced:
        raise UsageError(
            f"{location}: the object store does not honour If-Match, so two pipelines could hold the lock of one "
            "checkpoint: use one that has conditional writes"
        )
    _known_to_refuse.add(store)
