"""Graphviz (`dot`) as a program: one run at a time, each with a deadline and a bound of its output.

The caller writes the text: names that clients chose are in it only as quoted labels, and nodes are numbers.
"""

import shutil
import subprocess
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from fastapi import HTTPException

from headgate.web.api.estate_tables import TooBusyError

_MAX_OUTPUT: Final = 64 * 1024 * 1024
DRAWING: Final = threading.Lock()  # one picture at a time: a large one takes a core for seconds


def run_graphviz(
    form: str,
    text: str,
    *,
    what: str,
    instead: str,
    deadline_s: float,
    wait_s: float = 0,
    options: Sequence[str] = (),
) -> bytes:
    """The output of `dot -T{form}` with these options; `instead` is what the caller of the API can do without it.

    501 where Graphviz is not installed, 503 where it fails or does not end in time, and `TooBusyError` when the run
    of another request has not ended within `wait_s`.
    """
    program = shutil.which("dot")
    if program is None:
        raise HTTPException(
            HTTPStatus.NOT_IMPLEMENTED,
            f"{what} needs Graphviz, which is not installed: install the package graphviz, or {instead}",
        )
    if not DRAWING.acquire(timeout=wait_s):
        raise TooBusyError(f"Another picture is being drawn: repeat the request in a second, or {instead}")
    try:
        done = subprocess.run(
            [program, f"-T{form}", *options],
            input=text.encode("utf-8", "replace"),
            capture_output=True,
            timeout=deadline_s,
            check=True,
        )
    except subprocess.TimeoutExpired:
        late = f"Graphviz did not finish within {deadline_s:g} seconds: narrow the graph, or {instead}"
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, late) from None
    except (OSError, subprocess.CalledProcessError):
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"Graphviz failed: {instead}") from None
    finally:
        DRAWING.release()
    if len(done.stdout) > _MAX_OUTPUT:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "The picture is too large: narrow the graph")
    return done.stdout
