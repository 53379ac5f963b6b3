"""The zoo: training cells that MindSpore builds, runs and exports, independent of the compiler under test.

`CASES[name]` describes one; `export(case, folder)` writes it as MindIR. They stand in source files because graph mode
reads their source.
"""

from __future__ import annotations

from . import (
    boundary,
    control_flow,
    forward_state,
    lenet,
    loss_scale,
    losses,
    mlp,
    optimizers,
    recurrent,
    residual,
    structure,
    training_cells,
    transformer,
    vision,
)
from .case import SEED, Batch, Built, Case, build, export, state_of

__all__ = ["CASES", "SEED", "Batch", "Built", "Case", "build", "export", "names", "state_of"]

_FAMILIES = (
    mlp,
    optimizers,
    lenet,
    structure,
    losses,
    transformer,
    recurrent,
    control_flow,
    forward_state,
    training_cells,
    vision,
    boundary,
    loss_scale,
    residual,
)
CASES: dict[str, Case] = {case.name: case for family in _FAMILIES for case in family.CASES}


def names(*tags: str, without: tuple[str, ...] = (), runs_on_cpu: bool | None = None) -> list[str]:
    """The cases that carry all of `tags` and none of `without`."""
    return [
        case.name
        for case in CASES.values()
        if case.tags.issuperset(tags)
        and not case.tags.intersection(without)
        and runs_on_cpu in (None, case.runs_on_cpu)
    ]
