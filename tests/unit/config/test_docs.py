"""`docs/configuration.md` and the code have the same sections, keys, defaults and ranges."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from headgate.config import load
from headgate.config.environment import RESERVED
from headgate.config.model import ConfigSection, ConnectConfig
from headgate.config.sections import annotations, sections

DOC = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text("utf-8")
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", flags=re.MULTILINE)
TABLES: dict[str, dict[str, tuple[str, str]]] = {
    match[1]: {key: (kind, default) for key, kind, default in ROW.findall(match[2])}
    for match in re.finditer(r"^## `\[([\w.]+)\]`\n(.*?)(?=^## |\Z)", DOC, flags=re.MULTILINE | re.DOTALL)
}
SECTIONS: dict[str, type[ConfigSection]] = {**sections(), "connect.NAME": ConnectConfig}
KEYS = [(section, key) for section, table in TABLES.items() for key in table]


def test_every_section_and_key_is_in_both() -> None:
    assert {name: set(table) for name, table in TABLES.items()} == {
        name: set(annotations(section)) for name, section in SECTIONS.items()
    }


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_the_default_is_what_the_table_says(section: str, key: str) -> None:
    _, cell = TABLES[section][key]
    default = getattr(SECTIONS[section](), key)
    if key == "advertised_host":
        assert "`listen`" in cell
    elif cell == "-":
        assert default is None
    else:
        written = tomllib.loads(f"x = {cell.strip('`')}")["x"]
        config: Any = load(None, {}, {f"{section}.{key}": written})
        table = config.connect["NAME"] if section == "connect.NAME" else getattr(config, section)
        assert getattr(table, key) == default


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_the_range_of_a_number_is_what_the_table_says(section: str, key: str) -> None:
    bounds = re.findall(r"\b(ge|le)=(-?\d+)", repr(annotations(SECTIONS[section])[key]))
    if bounds:
        low, high = dict(bounds)["ge"], dict(bounds)["le"]
        assert f"{low} to {high}" in TABLES[section][key][0]


def test_reserved_variables_are_named() -> None:
    assert all(f"`{name}`" in DOC for name in RESERVED)


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    example = re.search(r"```toml\n(.*?)```", DOC, flags=re.DOTALL)
    assert example is not None
    file.write_text(example[1])
    assert load(file, {}).gateway.advertised_host == "kafka.example.com"
