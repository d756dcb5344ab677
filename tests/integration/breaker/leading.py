"""A candidate for the lead as a process of its own: it writes trips for as long as it believes that it leads.

`python leading.py BOOTSTRAP PREFIX NAME` prints `leading`, `wrote`, `fenced`, `lost`, one a line, until it is killed.
"""

import asyncio
import sys

from headgate.base.errors import ClusterError
from headgate.facts import BreakerTripped
from headgate.kafka.leadership import Leadership
from headgate.share_groups.resources import FencedError, TripWriter

_PAUSE_S = 0.05


def say(word: str) -> None:
    print(word, flush=True)


def trip(group: str, generation: int) -> BreakerTripped:
    return BreakerTripped(
        at=1,
        group=group,
        generation=generation,
        resume_at=None,
        dlq_written=25,
        delivered=75,
        threshold_percent=20,
        window_ms=60_000,
    )


async def lead(bootstrap: str, prefix: str, name: str) -> None:
    settings = {"bootstrap.servers": bootstrap}
    writers: list[TripWriter] = []

    async def on_gained() -> None:
        writer = TripWriter(settings, prefix=prefix)
        await writer.open()
        writers.append(writer)
        say("leading")

    async def on_lost() -> None:
        writers.clear()
        say("lost")

    candidate = Leadership(settings, topic=f"{prefix}leader", on_gained=on_gained, on_lost=on_lost)
    candidate.start()
    generation = 0
    while True:
        await asyncio.sleep(_PAUSE_S)
        if not writers:
            continue
        generation += 1
        try:
            await writers[0].write(trip(name, generation))
        except FencedError:
            say("fenced")
            writers.clear()
        except ClusterError as failure:
            say(f"failed {failure}")
        else:
            say("wrote")


if __name__ == "__main__":
    asyncio.run(lead(*sys.argv[1:]))
