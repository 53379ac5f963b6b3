"""Schedule: the learning rate by the number of updates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.analysis.training.gradient_path import updating_graphs
from ..ir.core.errors import OptionError, PassError
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.sites import site
from ..ir.core.wording import counted
from .framework.base import Pass
from .framework.options import option, print_value
from .step.names import TABLE
from .step.rates import DIVIDE_BY_RATE, Rate, find_rates, set_rates

CONSTANT, LINEAR, COSINE, ONE_CYCLE, LIST = "constant", "linear", "cosine", "one-cycle", "table"
LONGEST = 10_000_000
START = {ONE_CYCLE: 1 / 25}
END = {ONE_CYCLE: 1 / 25 / 1e4}


class RateSchedule(Pass):
    """Sets the learning rate by the number of updates.

    Over the first ``warmup`` updates the rate grows from ``start`` times ``lr`` to ``lr`` in a straight line. Then it
    falls to ``end`` times ``lr``, which update number ``total`` has and all after it: ``kind=linear`` in a straight
    line, ``kind=cosine`` on half a cosine, ``kind=one-cycle`` too, which also rises on one. ``kind=constant`` stays at
    ``lr``. ``kind=table`` takes the rates one by one from ``table``, and stays at its last.

    Updates count from zero. A skipped one does not count; a window of accumulation is one. ``lr`` is the rate of the
    file unless given. Several rates (groups of parameters) keep their ratios. The rates stand in the program as
    float32.

    State: ``learning_rate``, or what the file calls it, shows the rate of the last update. ``schedule.rates`` is the
    list, which no checkpoint holds. ``schedule.updates`` counts where the file counts no updates itself.

    Changes training.

    Source: ``cosine_decay_lr``, ``polynomial_decay_lr`` and ``warmup_lr`` of ``mindspore.nn``; Smith and Topin,
    Super-Convergence, 2018 (one-cycle, with the cosines and the numbers of fast.ai).
    """

    name = "schedule"
    preserves = False
    early = True
    closing = True
    kind: str = option(COSINE, help="how the rate moves", choices=(CONSTANT, LINEAR, COSINE, ONE_CYCLE, LIST))
    total: int | None = option(None, help="the update that has the last rate", minimum=1, maximum=LONGEST)
    warmup: int | None = option(None, help="updates over which the rate grows", minimum=0, maximum=LONGEST)
    lr: float | None = option(None, help="the largest rate", minimum=0)
    start: float | None = option(None, help="the first rate, as a part of lr", minimum=0)
    end: float | None = option(None, help="the last rate, as a part of lr", minimum=0)
    table: tuple[float, ...] = option((), help="the rates one by one", minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        falls = self.kind in (LINEAR, COSINE, ONE_CYCLE)
        if falls and self.total is None:
            self._refuse("needs total, the update at which it ends")
        if not falls and (self.total is not None or self.end is not None):
            self._refuse("has no end: leave total and end out")
        if falls and self._warmup >= (self.total or 0):
            self._refuse(f"falls after its warm-up: warmup={self._warmup} leaves nothing of total={self.total}")
        if (self.kind == LIST) != bool(self.table):
            self._refuse("needs table, the rates one by one" if self.kind == LIST else "takes no table")
        if self.kind == LIST and not (self.warmup is None and self.lr is None and self.start is None):
            self._refuse("has all rates in its table: leave lr, warmup and start out")
        if self.start is not None and not self._warmup:
            self._refuse("has no warm-up, at which start would be: give warmup")
        for given in filter(None, (self.lr, self.start, self.end, *self.table)):
            if not math.isfinite(given):
                self._refuse(f"takes finite numbers, not {print_value(given)}")

    def _refuse(self, why: str) -> None:
        raise OptionError(f"pass '{self.name}': kind={self.kind} {why}")

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if TABLE in program.state:
            asked = any(report.name == self.name for report in program.reports)
            remedy = (
                "ask for schedule once" if asked else "give keep_schedule=false to replace-optimizer, which keeps it"
            )
            raise PassError(f"the program has a schedule of its learning rate already: {remedy}")
        graphs = updating_graphs(program)
        rates = find_rates(program, graphs)
        largest = _peaks(rates, self.lr if self.kind != LIST else max(self.table))
        tables = [(rate, self._table(peak)) for rate, peak in zip(rates, largest, strict=True)]
        self._check_zero(program, tables)
        set_rates(program, graphs, tables)
        weights = dict.fromkeys(w for rate in rates for w in rate.weights)
        result.matched = result.changed = len(weights)
        length = len(tables[0][1])
        result.statistics = {"weights": len(weights), "rates": len(rates), "updates": length}
        peak = max(largest)
        result.summary = (
            f"{counted(len(rates), 'learning rate')} of {counted(len(weights), 'weight')} by the number of updates: "
            f"{self.kind}, at most {peak:.6g}, the same from update {length - 1} on"
        )
        return result

    @property
    def _warmup(self) -> int:
        if self.warmup is None and self.kind == ONE_CYCLE:
            return int(0.3 * (self.total or 0))
        return self.warmup or 0

    def _table(self, peak: float) -> list[float]:
        """The rate of each update up to the one after which nothing changes."""
        if self.kind == LIST:
            largest = max(self.table)
            return [v if peak == largest else peak * (v / largest) for v in self.table]
        first = peak * (START.get(self.kind, 0.0) if self.start is None else self.start)
        last = peak * (END.get(self.kind, 0.0) if self.end is None else self.end)
        rise = _cosine if self.kind == ONE_CYCLE else _straight
        fall = _straight if self.kind == LINEAR else _cosine
        rates = [rise(first, peak, i, self._warmup) for i in range(self._warmup)]
        if self.kind == CONSTANT:
            return [*rates, peak]
        length = (self.total or 0) - self._warmup
        return [*rates, *(fall(peak, last, i, length) for i in range(length + 1))]

    def _check_zero(self, program: Program, tables: Sequence[tuple[Rate, Sequence[float]]]) -> None:
        dividing = next((node for node in program.all_nodes() if node.op.name in DIVIDE_BY_RATE), None)
        if dividing is not None and any(0.0 in table for _, table in tables):
            raise PassError(
                f"{site(dividing)} divides by the learning rate, which would be zero in some updates: give start "
                "and end "
                "above zero"
            )


def _straight(first: float, last: float, i: int, length: int) -> float:
    if first < last:  # in the order of MindSpore's warmup_lr and polynomial_decay_lr, whose bits these are
        return (last - first) * i / length + first
    return (first - last) * (1 - i / length) + last


def _cosine(first: float, last: float, i: int, length: int) -> float:
    """In the order of MindSpore's cosine_decay_lr."""
    return last + 0.5 * (first - last) * (1 + math.cos(math.pi * i / length))


def _peaks(rates: Sequence[Rate], lr: float | None) -> list[float]:
    """The largest value of each rate, in the ratios that they have."""
    unknown = next((rate for rate in rates if rate.numbers is None), None)
    if unknown is not None:
        weight = next(iter(unknown.weights))
        if len(rates) > 1:
            raise PassError(
                f"the graph computes the learning rate of weight '{weight}' ({unknown.name}), so its ratio to the "
                f"{counted(len(rates) - 1, 'other rate')} is not known: export groups with numbers for their rates"
            )
        if lr is None:
            raise PassError(
                f"the graph computes the learning rate of weight '{weight}' ({unknown.name}), so its largest value is "
                "not known: give lr"
            )
        return [lr]
    largest = [max(rate.numbers or ()) for rate in rates]
    for rate, peak in zip(rates, largest, strict=True):
        if len(rates) > 1 and not _in_ratio(rates[0], largest[0], rate, peak):
            raise PassError(
                f"the learning rates '{rates[0].name}' and '{rate.name}' (weight '{next(iter(rate.weights))}') are "
                "lists that do not keep one ratio: export groups with numbers for their rates"
            )
    if lr is None:
        return largest
    top = max(largest)
    if not top:
        raise PassError(f"the learning rate of the file ('{rates[0].name}') is zero, so nothing is in ratio to it")
    return [lr if peak == top else lr * (peak / top) for peak in largest]


def _in_ratio(first: Rate, largest: float, other: Rate, peak: float) -> bool:
    """Whether two lists of rates differ by one factor, as float32 numbers tell."""
    one, two = first.numbers or (), other.numbers or ()
    if len(one) != len(two):
        return len(one) == 1 or len(two) == 1
    return all(math.isclose(a * peak, b * largest, rel_tol=1e-5) for a, b in zip(one, two, strict=True))
