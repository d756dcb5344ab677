"""Bounds on the series of `/metrics`: how many a family has, and how long a label value is.

Label values such as the names of groups and topics come from configurations that users of the cluster can change. A
family has at most `MOST_SERIES` series; the rest are added up in one whose labels are all `(others)`. Label values over
`LONGEST_LABEL` characters are cut, with a hash of the whole value so that they stay distinct.

Invariant: a counter never falls, because a series that is shown once stays shown as long as it exists.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from headgate.proxy.features import MetricFamily, Samples

MOST_SERIES: Final = 1_000
LONGEST_LABEL: Final = 249  # a topic's name can be this long; names of groups can be longer
OTHERS: Final = "(others)"
LEFT_OUT: Final = ("headgate_metric_series_left_out", ())

_HASH_BYTES: Final = 8
_Labels = tuple[str, ...]
_Series = dict[_Labels, float]


def short_label(value: str) -> str:
    """The value of a label, cut if it is too long; equal for equal values, distinct for distinct ones."""
    if len(value) <= LONGEST_LABEL:
        return value
    digest = blake2b(value.encode(errors="surrogatepass"), digest_size=_HASH_BYTES).hexdigest()
    return f"{value[: LONGEST_LABEL - 1 - len(digest)]}~{digest}"


class SeriesLimit:
    """The bounds for one process; it knows which series were shown before."""

    def __init__(self, families: Iterable[MetricFamily], *, most: int = MOST_SERIES) -> None:
        self._families = {family.name: family for family in families}
        self._most = most
        self._shown: dict[str, _Series] = {}  # of counters, by family

    def bound(self, samples: Samples) -> dict[tuple[str, _Labels], float]:
        """The samples within the bounds, and how many series were left out of them."""
        bounded: dict[tuple[str, _Labels], float] = {}
        by_family: dict[str, _Series] = {}
        for (name, labels), value in samples.items():
            family = self._families.get(name)
            if not labels or family is None or family.kind == "histogram":  # whose labels are not names
                bounded[name, labels] = value
                continue
            if max(map(len, labels)) > LONGEST_LABEL:
                labels = tuple(map(short_label, labels))  # noqa: PLW2901
            series = by_family.setdefault(name, {})
            series[labels] = series.get(labels, 0) + value
        left_out = bounded.get(LEFT_OUT, 0)
        for name, series in by_family.items():
            others = (OTHERS,) * len(next(iter(series)))
            added_up = series.pop(others, None)  # by the feature itself, or by the worker
            shown, rest = self._select(name, series)
            left_out += len(rest)
            for labels, value in shown.items():
                bounded[name, labels] = value
            if rest or added_up is not None:
                bounded[name, others] = (added_up or 0) + sum(rest.values())
        bounded[LEFT_OUT] = left_out
        return bounded

    def _select(self, name: str, series: _Series) -> tuple[_Series, Mapping[_Labels, float]]:
        """Splits the series into shown ones and the rest; those that were shown before stay, the largest follow."""
        shown, rest = series, _Series()
        if len(series) > self._most:
            before = [labels for labels in self._shown.get(name, ()) if labels in series]
            new = sorted(series.keys() - set(before), key=lambda labels: (-series[labels], labels))
            shown = {labels: series[labels] for labels in [*before, *new][: self._most]}
            rest = {labels: series[labels] for labels in series.keys() - shown.keys()}
        if self._families[name].kind == "counter":
            self._shown[name] = shown
        return shown, rest
