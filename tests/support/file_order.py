"""The order in which the processes of pytest-xdist take whole files: `--dist loadfile --no-loadscope-reorder`.

A file that takes a minute or more and comes late leaves the other processes without work, so such files come first. By
their number of tests, which is the order of pytest-xdist itself, files of one or two long tests would be last.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest


def put_first(items: list[pytest.Item], folder: Path, names: Sequence[str]) -> None:
    """Sort the tests of these files before all others; all else stays in the order that pytest-randomly has made."""
    places = {folder / name: place for place, name in enumerate(names)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
