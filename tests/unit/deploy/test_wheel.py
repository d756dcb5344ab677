"""The wheel: its users have no Node, so it carries the page as `make setup` has built it."""

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[3]
STATIC = "headgate/web/static"


def test_the_wheel_carries_the_page_and_every_file_that_it_loads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = tmp_path.glob("*.whl")
    with ZipFile(file) as wheel:
        names = set(wheel.namelist())
        index = wheel.read(f"{STATIC}/index.html").decode()
    loaded = re.findall(r'(?:src|href)="/([^"]+)"', index)
    assert len(loaded) >= 3, "a script, a style sheet and the icon"
    assert {f"{STATIC}/{name}" for name in loaded} <= names
    assert [name for name in names if "elk-worker" in name], "the worker that lays out the map"
