"""Problems of a configuration, in sentences that an operator can act on.

A problem names the path of the key and says what to write instead. It never shows a given value other than a number:
any text may be a password in the wrong place.
"""

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic_core import ErrorDetails

from headgate.base.errors import UsageError

_PRINTED = 100
_SENTENCES = {
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_unicode": "must be text in UTF-8",
    "string_too_short": "must not be empty",
    "tuple_type": "must be a list, in square brackets",
    "frozen_set_type": "must be a list, in square brackets",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
    "model_type": "must be a table of keys",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct: `path` is a key (`gateway.nodes`), a variable's name, or the file that cannot be read."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class ConfigError(UsageError):
    """The configuration cannot be used; `problems` has everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


def shown(name: str) -> str:
    """A name from outside, escaped and shortened for one line of a terminal."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= _PRINTED else f"{text[:_PRINTED]}..."


def path_text(loc: Sequence[str | int]) -> str:
    """`("gateway", "deny_api_keys", 1)` as `gateway.deny_api_keys[1]`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{shown(part)}" if text else shown(part)
    return text


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that is most similar, if one is."""
    found = difflib.get_close_matches(name[:_PRINTED], known, n=1, cutoff=0.6)
    return found[0] if found else None


def sentence(error: ErrorDetails, known: Collection[str], *, in_file: bool) -> str:
    """One of pydantic's errors as a sentence; `known` are the names that are valid at its place."""
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            where = path_text(error["loc"][:-1])
            what = f"is not a key of [{where}]" if where else "is not a section"
            meant = nearest(str(error["loc"][-1]), known)
            return f"{what}; did you mean {meant}?" if meant else f"{what}; known are {', '.join(sorted(known))}"
        case "value_error":
            text = str(context["error"])
        case "greater_than_equal":
            text = f"must be at least {context['ge']}"
        case "less_than_equal":
            text = f"must be at most {context['le']}"
        case "literal_error":
            text = f"must be one of {context['expected']}"
        case "too_short":
            text = f"needs at least {context['min_length']} entry"
        case "too_long":
            text = f"can have at most {context['max_length']} entries"
        case other:
            text = _SENTENCES.get(other, error["msg"])
            if in_file and other in {"int_type", "bool_type"} and isinstance(error["input"], str):
                text += ", without quotes"
            if in_file and other == "string_type":
                text += ", in quotes"
    return text + _given(error["input"])


def _given(value: object) -> str:
    # A boolean is an int to Python; a number of a thousand digits is not worth its line.
    if isinstance(value, int) and abs(value) < 10**12:
        return f"; it is {str(value).lower()}"
    return ""
