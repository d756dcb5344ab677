"""Fuzzing of the codec: finds inputs for `codec_properties.check`.

    python -m tests.soak.fuzz_codec --seconds 60 [--found DIR]

With `atheris` (libFuzzer) inputs are found by coverage, of the generated readers too; without it, by damage at random
from a seed. The corpus is `corpus/`, frames as a real broker and real clients sent them, and messages made from the
tables. One rule: what is fuzzed is imported late, under the eyes of the fuzzer, or it would be blind.
"""

import argparse
import importlib
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

_SLOWEST_SECONDS: Final = 1.0
_PROPERTIES: Final = "tests.soak.codec_properties"


def by_chance(seconds: float, seed: int) -> int:
    """Damage at random; the result is how many inputs were tried."""
    target = importlib.import_module(_PROPERTIES)
    damage = importlib.import_module("tests.support.hostile_frames").damage_content
    rng = random.Random(seed)
    inputs = list(target.seeds())
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        content = bytearray(rng.choice(inputs))
        start, body = content[: target.START], content[target.START :]
        for _ in range(rng.choice((1, 1, 2, 4))):
            damage(rng, body)
        data = bytes(start + body[: target.LONGEST])
        began = time.thread_time()
        try:
            target.check(data)
            took = time.thread_time() - began
            assert took < _SLOWEST_SECONDS, f"{took:.1f} s of processor time"
        except Exception as failure:
            raise AssertionError(f"{failure!r} for input {data.hex()}") from failure
        count += 1
    return count


def by_coverage(atheris: Any, seconds: float, found: Path) -> None:
    """libFuzzer, which ends this process when the time is over or an input breaks a property."""
    with atheris.instrument_imports(include=["headgate.wire", "headgate.proxy.routes"]):
        target = importlib.import_module(_PROPERTIES)
    _instrument_readers(atheris)
    found.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (found / f"seed-{number:05}").write_bytes(seed)
    options = (
        f"-max_total_time={round(seconds)}",
        f"-max_len={target.LONGEST}",
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        f"-artifact_prefix={found}/crash-",
    )
    atheris.Setup([sys.argv[0], *options, str(found)], target.check)
    atheris.Fuzz()


def _instrument_readers(atheris: Any) -> None:
    """Readers are generated, so the import hook does not see them."""
    codec = importlib.import_module("headgate.wire.codec")
    for cls, version in importlib.import_module("tests.support.messages").VERSIONED:
        codec._reader(cls, version)
    for generated in codec._readers.values():
        generated.function = atheris.instrument_func(generated.function)


def main() -> None:
    arguments = argparse.ArgumentParser(description="fuzz the codec")
    arguments.add_argument("--seconds", type=float, required=True)
    arguments.add_argument("--found", type=Path, help="where inputs that reach new code go; with atheris only")
    arguments.add_argument("--seed", type=int, default=1, help="without atheris only")
    given = arguments.parse_args()
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        print(f"inputs {by_chance(given.seconds, given.seed)} by chance: atheris is not installed", flush=True)
    else:
        by_coverage(atheris, given.seconds, given.found or Path(tempfile.mkdtemp(prefix="headgate-fuzz-")))


if __name__ == "__main__":
    main()
