"""A process that writes batch after batch until it is killed; tells each batch that it has written.

Every batch sets all rows, over all buckets, to its own number: a reader that sees two numbers has seen half a batch.
"""

import sys
from pathlib import Path

from headgate.tables.writer import TableWriter
from tests.unit.tables.things import SORTED_THINGS, batch, thing

ROWS = 40


def main(root: Path, first: int) -> None:
    writer = TableWriter(root, SORTED_THINGS)
    for number in range(first, first + 1_000_000):
        rows = batch(thing(f"{name:02}", size=number) for name in range(ROWS))
        writer.upsert(rows, query="q", batch=number)
        print(number, flush=True)
        if number % 7 == 0:
            writer.optimize()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
