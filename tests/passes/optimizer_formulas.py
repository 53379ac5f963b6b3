"""The optimizers that stand here, with some options, by the formulas of their papers, which boost-verify judges by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from boost_compile.ir.core.spec import parse_spec
from boost_compile.passes.replace_optimizer.own import settle_own
from boost_compile.tools.verification import optimizers

Array = np.ndarray
Rule = Callable[[dict[str, Array], str, Array, Array, int], Array]
"""The weight after an update, from the state that a rule keeps, its name, its value, its gradient, and the number of
the update. All in double precision."""


def _rule(to: str) -> tuple[str, Rule]:
    spec = settle_own(parse_spec(to, "optimizer"), "cpu", None)
    assert spec is not None
    return to, partial(optimizers.RULES[spec.name], spec.options)


RULES: dict[str, tuple[str, Rule]] = {
    "lion": _rule("lion{lr=0.01,weight_decay=0.1}"),
    "lamb": _rule("lamb{lr=0.01,weight_decay=0.01}"),
    "muon": _rule("muon{lr=0.02,weight_decay=0.1,adam_lr=0.002}"),
    "schedule-free": _rule("schedule-free-adamw{lr=0.01,weight_decay=0.1}"),
}
