"""All tables, found by looking into `definitions/`: no list is kept by hand."""

import pkgutil
from functools import cache
from importlib import import_module

from headgate.base.errors import UsageError
from headgate.tables import definitions
from headgate.tables.definition import Table


@cache
def all_tables() -> dict[str, Table]:
    """Every table by its name, in the names' order."""
    names = sorted(module.name for module in pkgutil.iter_modules(definitions.__path__))
    tables: dict[str, Table] = {name: import_module(f"{definitions.__name__}.{name}").TABLE for name in names}
    for name, table in tables.items():
        if table.name != name:
            raise ValueError(f"the table {table.name!r} is defined in a file of another name, {name}.py")
    return tables


def table_named(name: str) -> Table:
    try:
        return all_tables()[name]
    except KeyError:
        raise UsageError(f"there is no table {name!r}; the tables are: {', '.join(all_tables())}") from None
