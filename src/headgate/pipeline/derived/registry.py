"""All derivations, in the order in which they run: one that reads the result of another comes after it."""

from headgate.base.errors import UsageError
from headgate.pipeline.derived.backtest import BACKTEST
from headgate.pipeline.derived.causes import CAUSES
from headgate.pipeline.derived.dead_letters import DEAD_LETTERS
from headgate.pipeline.derived.derivation import Derivation
from headgate.pipeline.derived.gaps import LINEAGE_GAPS
from headgate.pipeline.derived.impact import IMPACT_OF_TOPICS
from headgate.pipeline.derived.lineage import LINEAGE
from headgate.pipeline.derived.rates import RATES

DERIVATIONS: tuple[Derivation, ...] = (
    RATES,
    CAUSES,
    DEAD_LETTERS,
    LINEAGE,
    LINEAGE_GAPS,
    IMPACT_OF_TOPICS,
    BACKTEST,
)


def derivation_of(table: str) -> Derivation | None:
    """The derivation that makes this table; None when none does."""
    return next((one for one in DERIVATIONS if table in one.results), None)


def check_order(derivations: tuple[Derivation, ...]) -> None:
    """`UsageError` when a table has two derivations, or is read before it is made."""
    made: set[str] = set()
    every = [result for one in derivations for result in one.results]
    for one in derivations:
        early = [name for name in one.sources if name in every and name not in made]
        twice = [name for name in one.results if every.count(name) > 1]
        if early or twice:
            raise UsageError(f"derivation {one.name}: {', '.join(early + twice)}: made later, or by two derivations")
        made |= set(one.results)


check_order(DERIVATIONS)
