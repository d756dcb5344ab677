"""Readers see whole batches only, while a writer writes, tidies and is killed."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from headgate.tables.reader import TableReader
from tests.unit.tables.things import SORTED_THINGS
from tests.unit.tables.writing_process import ROWS

LIVES = 3


def test_no_reader_sees_half_a_batch(tmp_path: Path) -> None:
    reader = TableReader(tmp_path)
    chance = random.Random(os.urandom(8))
    seen: set[int] = set()
    reads, told = 0, -1
    for _ in range(LIVES):
        # The batch that was being written when the process died comes again, as Spark gives it again.
        process = _start(tmp_path, first=told + 1)
        assert process.stdout is not None
        try:
            told = int(process.stdout.readline())
            deadline = time.monotonic() + 0.5 + chance.random()
            while time.monotonic() < deadline:
                sizes = [row["size"] for row in reader.rows(SORTED_THINGS, columns=["size"]).rows]
                assert len(sizes) == ROWS
                assert len(set(sizes)) == 1
                assert not seen or sizes[0] >= max(seen)
                seen.add(sizes[0])
                reads += 1
        finally:
            process.kill()
            rest = process.stdout.read().split()
            process.wait()
            process.stdout.close()
        told = int(rest[-1]) if rest else told
    assert len(seen) > 2 * LIVES
    assert reads > len(seen)


def _start(root: Path, *, first: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.unit.tables.writing_process", str(root), str(first)],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    )
