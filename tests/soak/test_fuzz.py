"""The codec under fuzzing: by coverage where `atheris` is installed, else by chance; never skipped."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.soak.page import write_section

pytestmark = pytest.mark.timeout(0)  # the fuzzer ends by its own clock
_ROOT = Path(__file__).resolve().parents[2]
_SHARE = 0.05  # of the minutes


def test_no_bytes_break_the_codec_the_walkers_or_the_splices(tmp_path: Path, minutes: float) -> None:
    seconds = round(60 * minutes * _SHARE)
    command = [sys.executable, "-m", "tests.soak.fuzz_codec", f"--seconds={seconds}", f"--found={tmp_path / 'found'}"]
    done = subprocess.run(
        command,
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds + 300,
        check=False,
    )
    print(done.stdout[-2000:])
    engine = "atheris (libFuzzer), guided by coverage" if find_spec("atheris") else "damage at random: no atheris here"
    tried = re.search(r"Done (\d+) runs|inputs (\d+)", done.stdout)
    count = int(next(filter(None, tried.groups()))) if tried else 0
    what = (
        f"`tests/soak/codec_properties.py` for {seconds} s, {engine}. Decoding of every message in every version, "
        "header and acks readers, the walkers in one piece and in many, the splices with and without kept length."
    )
    crashes = 0 if done.returncode == 0 else done.stdout[-500:]
    write_section("Codec fuzzing", [what, "", f"- inputs: {count:,}", f"- crashes: {crashes}"])
    assert done.returncode == 0, done.stdout[-4000:]
    assert count > 0
