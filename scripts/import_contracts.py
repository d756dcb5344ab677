"""The import contract of the rooms: each package of Headgate names the packages that it may import.

import-linter has layers and forbidden imports, and no allow list; a room that is not in the table, and an import that
its room does not name, break this contract.
"""

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

_ROOT = "headgate."


class RoomsContract(Contract):
    """`rooms` has a line for each room: `room: allowed allowed ...`; `*` allows everything."""

    type_name = "rooms"
    rooms = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        table = {room: allowed.split() for room, _, allowed in (line.partition(":") for line in self.rooms)}  # type: ignore[attr-defined]
        broken: list[str] = []
        for importer in sorted(module for module in graph.modules if module.startswith(_ROOT)):
            room = _longest_prefix(importer, table)
            if room is None:
                broken.append(f"{importer} is in no room")
                continue
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                allowed = [room, *table[room]]
                if imported.startswith(_ROOT) and "*" not in allowed and not _is_allowed(imported, allowed, table):
                    line = graph.get_import_details(importer=importer, imported=imported)[0]["line_number"]
                    broken.append(f"{importer} (line {line}) imports {imported}, which {room} may not")
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(line)


def _longest_prefix(module: str, names: object) -> str | None:
    path = module.removeprefix(_ROOT)
    fitting = [name for name in names if path == name or path.startswith(f"{name}.")]  # type: ignore[attr-defined]
    return max(fitting, key=len, default=None)


def _is_allowed(module: str, allowed: list[str], table: dict[str, list[str]]) -> bool:
    """A name in the list allows the room of that name, or one part of a room, and not the rooms inside it."""
    name = _longest_prefix(module, allowed)
    room = _longest_prefix(module, table)
    return name is not None and room is not None and len(name) >= len(room)
