"""How each table is made: one module a table, named as the table, found by looking into this folder.

A module has `KINDS`, the facts that it is made of, and `build(facts) -> rows`: from the DataFrame of `reduction.py` to
one with the table's columns. It never collects and never looks at a table. Adding a table is adding a module here and
a definition in `tables/definitions`. Facts of the large topics are appended (`queries.py`); in tables of the others a
column `*topic_id` gets the topic's name here, and its id when it is written (`topic_ids.py`).
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from pyspark.sql import DataFrame

from headgate.tables.definition import Table
from headgate.tables.registry import table_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    table: Table
    kinds: frozenset[str]
    build: Callable[[DataFrame], DataFrame]

    def rows(self, facts: DataFrame) -> DataFrame:
        """The rows with exactly the table's columns, in their order."""
        return self.build(facts).select(*self.table.columns.names)


@cache
def all_builds() -> dict[str, Build]:
    """Every build by its table's name, in the names' order."""
    found = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        module = import_module(f"{__name__}.{name}")
        found[name] = Build(table=table_named(name), kinds=frozenset(module.KINDS), build=module.build)
    return found
