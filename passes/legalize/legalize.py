"""Legalization: a program that holds only primitives which its target has kernels for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ...ir.analysis.effects.state_access import Effect, summarize
from ...ir.analysis.targets import lacking, refusal
from ...ir.analysis.training.results import name_results
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Node
from ...ir.core.primitives import ASCEND, CPU, GPU, PRIMITIVES
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.wording import counted
from ...ir.rewrite.cropping import crop, croppings
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.in_place import copy_constants, replaceable_writes, without_writes, written_constants
from ..framework.base import Pass
from ..framework.options import option
from ..framework.pattern import Rewrite
from .half import widen, widenable
from .npu_float_status import lower_npu_float_status
from .replacements import REPLACEMENTS

Rule = Callable[[Graph, list[Node]], None]
"""Makes everyone who uses the given nodes of a main graph and its functions use something else; the pass then removes
the nodes. A rule emits only what every target has, and what the table of primitives lists."""

_STATUS = (
    "NPUAllocFloatStatus",
    "NPUClearFloatStatus",
    "NPUGetFloatStatus",
    "NPUClearFloatStatusV2",
    "NPUGetFloatStatusV2",
)
RULES: dict[str, Rule | Rewrite] = {
    **dict.fromkeys(_STATUS, lower_npu_float_status),
    **REPLACEMENTS,
}
"""By primitive: what to do where the target has no kernel for it. A function gets all its nodes at once, since what it
makes of one depends on the others."""


class Legalize(Pass):
    """Replaces primitives that the target has no kernel for by others that compute the same.

    A training cell fits the machine that exported it. The overflow status of Ascend becomes a test of the gradients,
    FloatStatus and AllFinite a test of their operands, Centralization a subtraction of the mean. What has a kernel for
    float32 only computes float16 in float32, between casts. A primitive that the target lacks and that no rule replaces
    is an error.

    In-place operations on computed tensors (``g *= scale``) become operations with a result on the update side. An
    operation that would write into a constant gets a copy of it. On a CPU a padding by a negative width, the gradient
    of every ``ops.pad``, becomes a slice: MindSpore 2.10's kernel is right in its first run only.

    The pass names the results that are the overflow flag and the loss scale (``StepResult.overflow``, ``.loss_scale``).

    Preserves training: the same steps are skipped, with one exception. The status of a saturating Ascend also reports
    overflows that leave all gradients finite, and the test does not.

    Source: the lists of kernels in the plug-ins of MindSpore 2.10.
    """

    name = "legalize"
    may_match_nothing = True
    early = True  # other passes look for a test of the gradients, which the status is not
    target: str | None = option(
        None, help="where the program is to run; none: as the program says", choices=(CPU, GPU, ASCEND)
    )

    @classmethod
    def check_target(cls, program: Program, target: str) -> None:
        for name, graph in program.graphs.items():
            for node in lacking(graph, target):
                if node.op.name not in RULES and not widenable(node, target):
                    raise PassError(refusal(node, name, target))

    @classmethod
    def needed_for(cls, program: Program, target: str) -> list[Node]:
        found: list[Node] = []
        for graph in program.graphs.values():
            bodies = list(graph.all_graphs())
            found += [node for node in lacking(graph, target) if node.op.name in RULES or widenable(node, target)]
            found += [node for body in bodies for node, _ in written_constants(body)]
            found += [node for body in bodies for node in croppings(body)] if target == CPU else []
            found += replaceable_writes(graph, target)
        return found

    def run(self, program: Program) -> PassResult:
        result = self.result()
        target = self.target or program.target
        found = {name: lacking(graph, target) for name, graph in program.graphs.items()}
        unlisted: Counter[str] = Counter()
        lowered: Counter[str] = Counter()
        copied = replaced = widened = cropped = 0
        for name, graph in program.graphs.items():
            unlisted.update(node.op.name for node in graph.all_nodes() if node.op.name not in PRIMITIVES)
            ruled = [node for node in found[name] if node.op.name in RULES]
            lowered.update(node.op.name for node in ruled)
            lower(graph, ruled)
            for node in found[name]:
                if node.op.name not in RULES:
                    widen(node)
                    widened += 1
            for body in graph.all_graphs():
                copied += copy_constants(body)
                for node in croppings(body) if target == CPU else ():
                    crop(node)
                    cropped += 1
            replaced += without_writes(graph, target)
            name_results(program, graph)
        program.target = target
        result.matched = result.changed = sum(lowered.values()) + copied + replaced + widened + cropped
        result.statistics = {**lowered, "primitives taken on trust": len(unlisted)}
        what = [f"{name} x {n} replaced" for name, n in lowered.items()]
        what += [f"{counted(widened, 'node')} of float16 computed in float32"] if widened else []
        what += [f"{replaced} in-place operations given a result of their own"] if replaced else []
        what += [f"{counted(copied, 'constant')} copied before they are written"] if copied else []
        what += [f"{counted(cropped, 'padding')} by negative widths sliced"] if cropped else []
        result.summary = f"{', '.join(what)} for {target}" if what else f"nothing to replace for {target}"
        return result


def lower(main: Graph, nodes: list[Node]) -> None:
    """Applies the rules to nodes of a main graph and its functions, and removes them."""
    by_rule: dict[Rule, list[Node]] = {}
    by_body: dict[Graph, list[Node]] = {}
    for node in nodes:
        rule = RULES[node.op.name]
        if isinstance(rule, Rewrite):
            rule.at(node)
        else:
            by_rule.setdefault(rule, []).append(node)
            by_body.setdefault(node.home, []).append(node)
    for rule, those in by_rule.items():
        rule(main, those)
    known = summarize(main)
    for body, gone in by_body.items():
        fx = Effects(body, known)
        fx.drop(Effect(node) for node in gone)
        fx.commit()
