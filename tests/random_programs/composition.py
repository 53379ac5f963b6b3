"""What native training is the same as a random pipeline: MindSpore's gradients and optimizer, and plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from boost_compile.ir.analysis.training.anatomy import anatomy

import boost_compile as bc
from tests import native, reference
from tests.networks import Batch, Case
from tests.reference import Cells, Clip, Cycle, LossScale, Run

from .agreement import Train, moved, nearby
from .pipelines import CLEANUP, name_of, option_of
from .plan import Plan

CellsOf = Callable[[Case, frozenset[str]], Cells]
ALONE = frozenset({"data-parallel", "adasum", "legalize", *CLEANUP})
"""Passes that change nothing of the training of one process."""
ACCUMULATION, CLIP = "gradient-accumulation", "clip-gradients"
KNOWN = frozenset({ACCUMULATION, CLIP, "overflow-check", "loss-scale", "group-loss-scale",
                   "tag-gradient-centralization", "lower-gradient-centralization"})  # fmt: skip


@dataclass(frozen=True)
class Composition:
    """`checked`: overflows are skipped, so some may be injected."""

    judge: str
    train: Train
    checked: bool


def regroups_sums(original: bc.Program, passes: list[str]) -> bool:
    """Whether a pass that changes nothing may still add in another order: a weight that is used twice may have a
    gradient of several parts, which the file adds up together with weight decay and an exchange between ranks before
    it."""
    (graph,) = original.graphs.values()
    in_parts = any(len(weight.gradient) > 1 for weight in anatomy(graph).weights)
    return in_parts and any(name_of(p) in ("data-parallel", "adasum") for p in passes)


def rounding_unit(plan: Plan) -> float:
    return 2.0**-11 if any(layer.half for layer in plan.network.layers) else 2.0**-24


def compose(
    plan: Plan, case: Case, passes: list[str], program: bc.Program, cycles: list[list[Batch]], cells_of: CellsOf
) -> Composition | None:
    """None where it cannot be composed: another pass, masks that two graphs draw, scales that half precision rounds.

    `cells_of(case, weights)` are those that compute its gradients, and centralize those of the weights.
    """
    names = {name_of(p) for p in passes} - ALONE
    unit = rounding_unit(plan)
    reduction = option_of(passes, ACCUMULATION, "reduction", "mean")
    layers = plan.network.layers
    fused = option_of(passes, ACCUMULATION, "split", "apply") == "fused"
    if names - KNOWN or (fused and any(layer.op == "dropout" for layer in layers)):
        return None
    if names == {ACCUMULATION} and (reduction == "sum" or (reduction == "mean" and plan.cell.name == "sens")):

        def accumulate(seed: int) -> Run:
            return accumulated(nearby(case, unit, seed), cycles, reduction)

        return Composition("native accumulation", accumulate, False)
    half = any(layer.half for layer in layers)
    if reduction == "sum" or plan.cell.name == "sens" or (half and "group-loss-scale" in names):
        return None
    scale = None
    if "loss-scale" in names:
        window = int(option_of(passes, "loss-scale", "window", "0")) or None
        value = float(option_of(passes, "loss-scale", "init", "1"))
        scale = LossScale(value, window, float(option_of(passes, "loss-scale", "factor", "2")))
    checked = bool(names & {"overflow-check", "group-loss-scale"}) or (scale is not None and scale.window is not None)
    policy = option_of(passes, "overflow-check", "policy", "skip-cycle") if checked else None
    by = option_of(passes, CLIP, "by", "")
    clip = Clip(by, float(option_of(passes, CLIP, "limit", "1"))) if by else None
    tagged: list[str] = []
    if "lower-gradient-centralization" in names:
        for name, variable in program.state.items():
            axes = variable.info.get("centralize")
            if axes is not None and list(axes) != list(range(1, len(variable.shape))):
                return None
            tagged += [name] if axes is not None else []
    if tagged and clip is not None and clip.by == "value":
        # Where all of a row is clipped, rounding alone is left of it behind its mean: boost-verify measures that.
        return None
    weight = (lambda batch: float(batch[-1].sum())) if reduction == "weighted" else None

    def train(seed: int) -> Run:
        cells = cells_of(case, frozenset(tagged))
        as_built = cells.initial
        if seed:
            cells.initial = moved(as_built, [w.name for w in cells.weights], unit, seed)
        try:
            return reference.train(
                case, cycles, loss_scale=scale, overflow=policy, clip=clip, centralize=tagged, weight=weight,
                cells=cells,
            )  # fmt: skip
        finally:
            cells.initial = as_built

    return Composition("native composition", train, checked)


def accumulated(case: Case, cycles: list[list[Batch]], reduction: str) -> Run:
    """Of tests/native.py, in the form of tests/reference.py."""
    initial = native.initial_state(case)
    run = native.train_accumulated(case, cycles, reduction)
    done = [
        Cycle(losses, 1.0, False, False, gradients, None, state)
        for losses, gradients, state in zip(run.losses, run.gradients, run.states, strict=True)
    ]
    return Run(initial, done, run.magnitudes)
