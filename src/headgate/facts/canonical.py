"""JSON in its one compact form: what is written twice is the same bytes twice.

One rule: reading never raises anything but `MisfitError`, whatever the bytes are, and what was read can be written.
Names are hostile: every text survives, a lone surrogate (a name that was no UTF-8) as its JSON escape. Only two lone
surrogates that spell one character side by side come back as that character.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_DEPTH = 32


class MisfitError(ValueError):
    """Bytes or values that are not the fact that they should be; the text is the reason of a `Rejected`."""


def dumps(value: object) -> bytes:
    """Compact UTF-8; the order of an object's fields is the order that it has."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # UTF-8 has no lone surrogates; Python's backslash form of them, \udc80, is JSON's escape too.
    return text.encode("utf-8", "backslashreplace")


def loads(data: bytes) -> object:
    """The value of a JSON text in UTF-8, with nothing in it on which two readers could differ."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MisfitError(f"not UTF-8 at byte {error.start}") from None
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise MisfitError(f"not JSON: {error.msg} at character {error.pos}") from None
    except MisfitError:
        raise
    except ValueError:
        raise MisfitError("a number has thousands of digits") from None
    except RecursionError:
        raise MisfitError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise MisfitError("a field stands twice in one object")
    return fields


def _no_constant(_: str) -> NoReturn:
    raise MisfitError("NaN and Infinity are not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MisfitError("a number is too large")
    return number


@dataclass(frozen=True, slots=True)
class JsonText:
    """Any JSON value as its compact text, fields sorted: frozen, hashable, equal when the values are equal.

    It carries what has no schema here: the detail of an event, and the fields of a later version.
    """

    text: str

    @classmethod
    def of(cls, value: object) -> "JsonText":
        """From lists, dictionaries, texts, numbers, booleans and None; `MisfitError` for anything else."""
        if _depth(value) > MAX_DEPTH:
            raise MisfitError(f"nested deeper than {MAX_DEPTH} levels")
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
        except (TypeError, ValueError) as error:
            raise MisfitError(f"not a JSON value: {error}") from None
        return cls(text)

    def value(self) -> Any:
        return json.loads(self.text)


def _depth(value: object) -> int:
    """How many lists and objects lie in one another; it stops counting one above the limit."""
    depth = 0
    level: list[Any] = [value]
    while depth <= MAX_DEPTH:
        level = [item for item in level if isinstance(item, dict | list | tuple)]
        if not level:
            break
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth
