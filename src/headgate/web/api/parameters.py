"""Parameters that several resources have, with their bounds."""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Depends, HTTPException, Query, Request

MAX_NAME: Final = 4_096  # characters of up to 12 bytes, encoded: a request line has 64 KiB
MAX_LIMIT: Final = 1_000
_MAX_TIME_MS: Final = 253_402_300_799_000  # the end of the year 9999
_TIME_HELP: Final = "such as 2026-11-15T12:00:00Z, or epoch milliseconds"

Contains = Annotated[str, Query(max_length=MAX_NAME, description="a part of the name")]
After = Annotated[str, Query(max_length=MAX_NAME, description="names after this one")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="at most so many rows")]
AsOf = Annotated[str | None, Query(max_length=64, description=f"a time {_TIME_HELP}; without it, now")]


async def _cluster(
    request: Request,
    cluster: Annotated[
        str | None,
        Query(
            max_length=255,
            description="the id of a Kafka cluster, where the tables have several; without it, that of this server",
        ),
    ] = None,
) -> str | None:
    """Only this decides which cluster a request is about; the ETag depends on it (`answers.py`)."""
    chosen = cluster if cluster is not None else await request.app.state.tables.default_cluster()
    request.state.cluster = chosen
    return chosen


Cluster = Annotated[str | None, Depends(_cluster)]


def page_after(names: Sequence[str], after: str, limit: int) -> tuple[slice, str | None]:
    """The place of a page in these sorted names, and the name after which the next page begins, None on the last."""
    first = bisect_right(names, after) if after else 0
    end = first + limit
    return slice(first, end), names[end - 1] if end < len(names) else None


def parse_as_of(as_of: str | None) -> int | None:
    """The time in epoch milliseconds; None for now."""
    return None if as_of is None or as_of == "now" else parse_api_time("as_of", as_of)


def parse_api_time(parameter: str, text: str) -> int:
    """A time in epoch milliseconds; one without a zone is UTC."""
    if text.isascii() and text.isdecimal() and len(text) < 16:
        found = int(text)
    else:
        try:
            # In a query string a plus sign is a space.
            time = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        except ValueError:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"{parameter}: must be a time {_TIME_HELP}") from None
        zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        found = int((zoned - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    if not 0 <= found <= _MAX_TIME_MS:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"{parameter}: must be a time from 1970 to 9999")
    return found
