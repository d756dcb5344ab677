"""Generated Python: the lines of one function, the objects that they name, and which field each line belongs to.

Invariant: source is made of our own table entries only (attribute names, numbers), never of anything that came from
the wire. The field of a line is what an error's text needs, and keeping it here costs the generated code nothing:
the line number in a traceback leads back to the path.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any


class Source:
    """A function under construction; `bind` gives it objects, `line` adds code under the current path."""

    def __init__(self, title: str, signature: str) -> None:
        self.title = title
        self._signature = signature
        self._lines: list[str] = [""]
        self._paths: list[str] = [""]
        self._depth = 1
        self._path: list[str] = []
        self._names: dict[int, str] = {}
        self._bound: dict[str, Any] = {}
        self._fresh = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)
        self._paths.append(".".join(self._path))

    @contextmanager
    def block(self, text: str) -> Iterator[None]:
        self.line(text)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Lines inside belong to this field of the struct that is being read or written."""
        self._path.append(name)
        yield
        self._path.pop()

    def fresh(self, stem: str) -> str:
        """A local name that no other part of the function has."""
        self._fresh += 1
        return f"{stem}{self._fresh}"

    def bind(self, value: Any, stem: str) -> str:
        """The name under which the generated code sees an object."""
        name = self._names.get(id(value))
        if name is None:
            name = f"{stem}_{len(self._bound)}"
            self._names[id(value)] = name
            self._bound[name] = value
        return name

    def constant(self, value: Any) -> str:
        """A default as the generated code writes it: plain values in place, the others by name."""
        plain = value is None or isinstance(value, bool | int | str)
        return repr(value) if plain else self.bind(value, "default")

    def build(self) -> "Generated":
        # Bound objects are defaults of parameters, so that the code reads them as locals and not as globals.
        given = ", ".join((self._signature, *(f"{name}={name}" for name in self._bound)))
        self._lines[0] = f"def generated({given}):"
        scope = dict(self._bound)
        exec(compile("\n".join(self._lines), self.title, "exec"), scope)  # noqa: S102 - see the rule of this module
        return Generated(function=scope["generated"], title=self.title, paths=tuple(self._paths))


class Generated:
    """A compiled function that can tell which field it was at when it raised."""

    __slots__ = ("_paths", "_title", "function")

    def __init__(self, *, function: Callable[..., Any], title: str, paths: tuple[str, ...]) -> None:
        self.function = function
        self._title = title
        self._paths = paths

    def path_at(self, trace: TracebackType | None) -> str:
        """The field whose line stands in the traceback, as `groups.members.client_id`."""
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._title:
                return self._paths[trace.tb_lineno - 1]
            trace = trace.tb_next
        return ""
