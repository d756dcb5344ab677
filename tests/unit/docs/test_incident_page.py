"""`docs/incident.md`: its commands exist, and it has every verdict and action with the limits of the rule."""

import re
import shlex
from pathlib import Path

import pytest

from headgate.cli.main import parse_arguments
from headgate.dead_letters.model import episodes, verdict

PAGE = (Path(__file__).parents[3] / "docs" / "incident.md").read_text("utf-8")
COMMANDS = re.findall(r"^(?:\$ |    )headgate ([^#\n]*)$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_is_one(command: str) -> None:
    assert parse_arguments(shlex.split(command)).run


def test_there_are_such_commands() -> None:
    assert len(COMMANDS) >= 2


def test_every_verdict_and_every_action_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", PAGE, flags=re.MULTILINE)
    assert {name for name, _ in rows} == {one.value for one in verdict.EpisodeCause}
    assert {one for _, actions in rows for one in re.findall(r"`(\w+)`", actions)} == {
        one.value for one in verdict.OperatorAction
    }


@pytest.mark.parametrize(
    "words",
    [
        f"fewer than {verdict.MIN_ATTEMPTS} attempts",
        f"one member is at least {verdict.MEMBER_LOWER}, and",
        f"all others together at most {verdict.OTHERS_UPPER:.2f}",
        f"one value of a feature at least {verdict.CONTENT_LOWER} fail",
        f"a lower bound of at least {verdict.OUTAGE_LOWER}",
        f"at least {verdict.OUTAGE_MEMBERS:.0%} of the members".replace("%", " %"),
        f"upper bound above {verdict.OUTAGE_MEMBER_UPPER}",
        f"an upper bound of at most {verdict.POISON_UPPER}",
        f"lower bound above {verdict.POISON_BUCKET_LOWER}",
        f"joined until they have {episodes.BUCKET_ATTEMPTS} attempts",
    ],
)
def test_the_limits_are_those_of_the_rule(words: str) -> None:
    assert words in " ".join(PAGE.split())
