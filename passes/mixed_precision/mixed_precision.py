"""The pass ``mixed-precision``."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from ...ir.analysis.cost.flops import estimated_flops
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.core.errors import NotApplicable, OptionError, PassError
from ...ir.core.graph import Graph, Node
from ...ir.core.measuring import measurement
from ...ir.core.primitives import ASCEND, CPU
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.sites import site
from ...ir.core.types import DType
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ..framework.base import Pass
from ..framework.options import option
from ..step.dynamic_loss_scale import scales_its_loss
from ..step.step import the_step
from .labels import HALF, KEPT, OUTSIDE, Labels, Rule, is_structure, label
from .lists import BY_TARGET
from .narrow import Narrowing
from .search import Search, cells
from .turned import read_as_they_lie
from .widen import is_half, widen

NONE, AUTO = "O0", "auto"


class MixedPrecision(Pass):
    """Computes the network in half precision, forward and backward; weights and optimizer stay in float32.

    ``level`` says what computes in half precision, by the lists of ``mindspore.amp``: ``O1`` convolutions, products of
    matrices, what is added to them, and ReLU; ``O2`` everything but BatchNorm and LayerNorm; ``O3`` everything but the
    parameters and statistics of BatchNorm; ``auto`` O2 on CPU and GPU, O3 on Ascend; ``O0`` is the way back to float32.
    The backward part follows the forward part, node by node.

    ``keep`` names cells that stay in float32, by globs over scopes, several apart by ``|``. The loss stays in float32;
    ``loss=same`` casts one inside of the network, as MindSpore does. What the target has no kernel for in half
    precision stays in float32, and the report says so. ``dtype=bfloat16`` is for Ascend. (Not run on a chip.)

    A CPU keeps values for the backward part in float32. ``saved=half`` keeps them rounded, in half the bytes and with
    other bits. ``error`` bounds how far each weight's gradient may be off (0.01: one hundredth of its length):
    gradients are measured on ``data``, and the pass finds the cells that must stay in float32.

    The pass brings a dynamic ``loss-scale`` and ``overflow-check`` along for float16; ``loss_scale=false`` leaves them
    out.

    Changes training: values and gradients are rounded to half precision.

    Source: ``mindspore.amp.auto_mixed_precision``; Micikevicius et al., Mixed Precision Training, 2018.
    """

    name = "mixed-precision"
    early = True
    closing = True
    preserves = False
    level: str = option(AUTO, help="what computes in half precision", choices=(NONE, "O1", "O2", "O3", AUTO))
    dtype: str = option("float16", help="the type of half precision", choices=("float16", "bfloat16"))
    keep: str | None = option(None, help="cells that stay in float32: globs over scopes, apart by |")
    loss: str = option("float32", help="the type of a loss inside of the network", choices=("float32", "same"))
    saved: str = option("native", help="values that a CPU keeps for the backward part", choices=("native", "half"))
    loss_scale: bool | None = option(None, help="bring a dynamic loss scale along; none: for float16")

    error: float | None = option(None, help="most that a weight's gradient may be off, relative", minimum=1e-6)
    data: str | None = option(None, help="micro-batches (.npz) on which error finds what to keep")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.keep is not None or self.loss_scale or self.error is not None
        given = given or self.loss != "float32" or self.saved != "native"
        if self.level == NONE and given:
            raise OptionError(f"pass '{self.name}': level=O0 makes everything float32, and takes no other option")
        if self.data is not None and self.error is None:
            raise OptionError(f"pass '{self.name}': data=FILE is for error=BOUND, which is not given")
        if self.error is not None and self.data is None and self.keep is None:
            raise OptionError(f"pass '{self.name}': error={self.error:g} needs data=FILE.npz to measure gradients on")

    def needs(self, program: Program) -> Sequence[str]:
        wanted = self.dtype == "float16" if self.loss_scale is None else self.loss_scale
        return ["loss-scale"] if wanted and self.level != NONE and not scales_its_loss(program) else []

    def settled(self, program: Program) -> MixedPrecision:
        """With ``data``: the pass with the cells in ``keep`` that ``error`` demands, and without data, so that the
        record of what ran compiles to the same again."""
        if self.data is None or self.error is None:
            return self
        step = the_step(program, self.name)
        labels = label(program, step, self._rule(program))
        self._refuse(labels, self._rule(program))
        given = [] if self.keep is None else self.keep.split("|")
        errors_of = measurement(program, self.data)

        def errors(kept: Sequence[str]) -> Mapping[str, float]:
            return errors_of([self._with_keep([*given, *kept])])

        search = Search(errors, self.error)
        search.run(cells(n for n, made in labels.of.items() if made == HALF and labels.parts[n] == FORWARD))
        found = self._with_keep([*given, *search.kept])
        object.__setattr__(found, "_search", search)
        return found

    def _with_keep(self, kept: Sequence[str]) -> MixedPrecision:
        return dataclasses.replace(self, keep="|".join(kept), data=None)

    _search: ClassVar[Search | None] = None

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if self.level == NONE:
            return self._back(program, result)
        step = the_step(program, self.name)
        rule = self._rule(program)
        labels = label(program, step, rule)
        self._refuse(labels, rule)
        rounds = self.saved == "half" and program.target == CPU
        turned = sum(read_as_they_lie(graph, labels.parts) for graph in step.all_graphs()) if rounds else 0
        if turned:
            labels = label(program, step, rule)
        if not labels.told and not rule.loss:
            result.miss(step.name, "where the network ends and the loss begins cannot be told: the loss is cast too")
        half = labels.half()
        if self.saved == "half" and not rounds:
            result.miss(step.name, f"saved=half changes nothing: on {program.target} half precision is kept anyway")
        casts, again, rounded = _narrow(step, half, labels, rule, rounds)
        self._report(result, labels, half, casts, again, rule)
        if rounds:
            result.statistics["values kept rounded"] = rounded
            result.statistics["products that read a matrix as it lies"] = turned
        if rounds and not rounded and not turned:
            result.miss(
                step.name, "saved=half changes nothing: the backward part takes no value that is not cast anyway"
            )
        if self._search is not None:
            self._report_search(result, self._search)
        return result

    def _rule(self, program: Program) -> Rule:
        level = BY_TARGET[program.target] if self.level == AUTO else self.level
        keep = tuple(self.keep.split("|")) if self.keep else ()
        return Rule(level, DType(self.dtype), program.target, keep, self.loss == "same")

    def _refuse(self, labels: Labels, rule: Rule) -> None:
        """PassError where the graph cannot be cast, before anything is changed."""
        step = labels.graph
        if BACKWARD not in labels.parts.values():
            raise NotApplicable(f"graph '{step.name}' has no backward part: it is not a training graph")
        already = next((n for n, part in labels.parts.items() if part == FORWARD and is_half(n.type)), None)
        weight = next((name for name, state in step.states.items() if is_half(state.type)), None)
        if already is not None or weight is not None:
            where = f"{already.op.name}, node %{already.name}" if already is not None else f"state '{weight}'"
            raise PassError(
                f"graph '{step.name}' is in half precision already ({where}), and {self.name} takes a float32 file: "
                f"make it one with {self.name}{{level=O0}}, in a compilation of its own, or take the file from before "
                f"{self.name}, or one exported without mindspore.amp"
            )
        if rule.dtype is DType.BFLOAT16 and rule.target != ASCEND:
            raise PassError(
                f"MindSpore has no bfloat16 kernels for products and convolutions on {rule.target}: take "
                "dtype=float16, or",
                python="compile for target='ascend'.",
                command="compile with boost-compile --target ascend.",
            )
        for glob in rule.keep:
            if not any(labels.reasons.get(n) == KEPT and rule.named(n, glob) for n in labels.parts):
                cells = dict.fromkeys(n.scope.rpartition("/")[0] for n in labels.half() if n.scope)
                shown = ", ".join(list(cells)[:8])
                raise PassError(f"keep='{glob}' names no cell that would be in half precision; such are: {shown}")

    def _report(
        self, result: PassResult, labels: Labels, half: Collection[Node], casts: int, again: int, rule: Rule
    ) -> None:
        network = [n for n, label in labels.of.items() if not is_structure(n) and label != OUTSIDE]
        result.matched = len(network) if half else 0
        result.changed = len(half)
        for node, reason in labels.reasons.items():
            result.miss(f"{labels.graph.name}: {site(node)}", f"stays in float32: {reason}")
        work, whole = estimated_flops(half), estimated_flops(n for n in labels.of if not is_structure(n))
        share = work / whole if whole else 0.0
        result.statistics = {
            "level": rule.level,
            "casts": casts,
            "of them again in the backward part": again,
            f"operations in {rule.dtype}": f"{share:.1%}",
            "primitives": dict(Counter(n.op.name for n in half).most_common()),
        }
        result.summary = (
            f"{rule.level}: {counted(len(half), 'node')} in {rule.dtype}, {share:.0%} of the operations; "
            f"{counted(casts, 'cast')}"
        )

    def _report_search(self, result: PassResult, search: Search) -> None:
        """What the search kept, and why, and how far gradients are off with that."""
        for cell, off in search.kept.items():
            result.miss(cell, f"stays in float32: {off.with_it('it')} in half precision {off.gradient('.2%')}")
        errors = search.errors
        worst = max(errors, key=lambda w: errors[w], default="")
        result.statistics |= {
            "cells kept for error": len(search.kept),
            "measurements": search.measured,
            "gradient errors": {w: f"{e:.3%}" for w, e in sorted(errors.items(), key=lambda item: -item[1])},
        }
        if worst:
            result.summary += f"; gradients off by at most {errors[worst]:.2%} ('{worst}')"

    def _back(self, program: Program, result: PassResult) -> PassResult:
        count = widen(program)
        if not count:
            raise NotApplicable("nothing in the program computes in half precision, so level=O0 has nothing to undo")
        result.matched = result.changed = count
        result.summary = f"{counted(count, 'node')} in float32 again"
        return result


def _narrow(main: Graph, half: Collection[Node], labels: Labels, rule: Rule, rounds: bool) -> tuple[int, int, int]:
    """The casts, how many of them the backward part does again, and the values that are kept rounded for it.

    A CPU keeps half values in float32 unless they are rounded: to cast one again there would keep it twice."""
    effects = Effects(main)
    casts = again = rounded = 0
    for graph in main.all_graphs():
        narrowing = Narrowing(graph, half, labels.parts, rule.dtype, rounds=rounds, late=rule.target != CPU)
        narrowing.run()
        casts += narrowing.casts
        again += narrowing.again
        rounded += narrowing.rounded
    effects.commit()
    return casts, again, rounded
