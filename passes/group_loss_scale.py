"""A loss scale for each group of layers: the derivative is scaled anew where it passes from one group to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..ir.analysis.derivative.linearity import Seed, find_seeds
from ..ir.analysis.training.gradient_path import gradient_paths, is_fed, updating_graphs
from ..ir.analysis.training.network import network_parts
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import OptionError, PassError, nearest
from ..ir.core.graph import Graph, Node, Use, Value
from ..ir.core.names import loss_scale_of
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.types import tensor
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.scale_seeds import scale_seeds
from .framework.base import Pass
from .framework.options import option
from .step.accumulated import added_terms, gradients_in
from .step.crossings import accumulated, crossings, derived_weights, gradients_at
from .step.depth import divided, layers_by_depth, matches
from .step.dynamic_loss_scale import put_scale_rule, refuse_second_scale
from .step.group_scale_rule import SCOPE
from .step.names import SKIPPED, steps_of, value_of
from .step.normalisation import divide_gradients
from .step.results import with_results


class GroupLossScale(Pass):
    """Keeps a dynamic loss scale of its own for each group of layers.

    A scale that suits the last layers may be too small for the gradients of the first ones. Here the derivative is
    multiplied by the scale of a group where it enters the group. The graph tells these places, and the pass proves them
    as ``loss-scale`` does, or refuses. Each gradient is divided by its group's scale once, before all else.

    ``groups`` puts about as many layers into each group, by depth. ``match`` names the weights of each group instead,
    by globs (several in one group: ``"conv*|bn*"``). Groups are numbered from the input to the loss.

    After each window a group whose gradients are not all finite divides its scale by √2, and the others multiply theirs
    by 2^(1/``window``). Any overflow skips the update of all weights, so the pass brings ``overflow-check`` along. An
    infinity counts for the group nearest the loss. The power of two below the scale is applied, so no bit changes.
    ``init`` is one number, or one for each group.

    Outputs: ``loss_scale_0`` …, the scales of the step's gradients (``StepResult.loss_scales``). State:
    ``loss_scale.group0.value``, ``loss_scale.group0.steps``, ….

    Preserves training bit for bit where nothing under- or overflows.

    Source: ``mindspore.boost.GroupLossScaleManager``.
    """

    name = "group-loss-scale"
    at_stage = "unscale"
    serves = ("loss-scale",)
    groups: int = option(4, help="how many groups, by depth", minimum=2)
    match: tuple[str, ...] = option((), help="globs over the names of weights instead, one for each group")
    init: tuple[float, ...] = option(
        (4096.0,), help="the scale to begin with, or one for each group", minimum=2.0**-24, maximum=2.0**64
    )
    window: int = option(1000, help="windows without overflow in which a scale doubles, an even number", minimum=2)
    min: float = option(1.0, help="least scale", minimum=2.0**-24)
    max: float = option(2.0**24, help="largest scale", maximum=2.0**64)
    assume_linear: tuple[str, ...] = option((), help="operators taken as linear in their first backward operand")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window % 2:
            raise OptionError(f"pass '{self.name}': option 'window' must be even, not {self.window}")
        for name, bound in (("min", self.min), ("max", self.max)):
            if math.frexp(bound)[0] != 0.5:
                raise OptionError(f"pass '{self.name}': option '{name}' must be a power of two, not {bound:g}")
        if not self.init:
            raise OptionError(f"pass '{self.name}': option 'init' is empty")
        for value in self.init:
            if not self.min <= value <= self.max:
                raise OptionError(
                    f"pass '{self.name}': init={value:g} is not between min={self.min:g} and max={self.max:g}"
                )
        if len(self.match) == 1:
            raise OptionError(f"pass '{self.name}': one group is what loss-scale is for: give match two globs or more")

    def needs(self, program: Program) -> Sequence[str]:
        return ["overflow-check"] if SKIPPED not in program.state else []

    def run(self, program: Program) -> PassResult:
        result = self.result()
        refuse_second_scale(program, self.name)
        layers = layers_by_depth(program)
        members = self._members(result, layers)
        depth = {weight: at for at, weight in enumerate(w for layer in layers for w in layer)}
        order = sorted(range(len(members)), key=lambda k: min(depth[w] for w in members[k]))
        self._add_state(program, order, members)
        group_of = {weight: k for k, weights in enumerate(members) for weight in weights}
        updating = updating_graphs(program)
        scaled = derived_weights(updating)
        leaving = 0
        for name, graph in program.graphs.items():
            places, here = _scale(
                program, graph, group_of, order, updates=graph in updating, assume_linear=self.assume_linear
            )
            leaving = max(leaving, here)
            if here:
                result.statistics[f"places scaled in {name}"] = places
        put_scale_rule(program)
        result.matched = result.changed = len(scaled)
        for k, weights in enumerate(members):
            shown = ", ".join(weights[:3]) + (", …" if len(weights) > 3 else "")
            result.statistics[f"group {k}"] = f"{counted(len(weights), 'weight')} ({shown})"
        places = max((v for k, v in result.statistics.items() if k.startswith("places")), default=0)
        result.summary = (
            f"{gradients_at(len(scaled), leaving)} in {counted(len(members), 'group')}, scaled at "
            f"{counted(places, 'place')}"
        )
        return result

    def _members(self, result: PassResult, layers: Sequence[Sequence[str]]) -> list[list[str]]:
        """The weights of each group."""
        weights = [w for layer in layers for w in layer]
        if not self.match:
            return divided(layers, self.groups, result, "there is nothing to group")
        members: list[list[str]] = [[] for _ in self.match]
        for weight in weights:
            found = next((k for k, globs in enumerate(self.match) if matches(weight, globs)), None)
            if found is None:
                raise PassError(
                    f"weight '{weight}' is in no group: no glob of match matches it. Add it, or end with a group \"*\""
                )
            members[found].append(weight)
        for globs, group in zip(self.match, members, strict=True):
            if not group:
                raise PassError(f"group '{globs}' has no weight of its own{nearest(globs, weights)}")
        return members

    def _add_state(self, program: Program, order: Sequence[int], members: Sequence[Sequence[str]]) -> None:
        if len(self.init) not in (1, len(order)):
            raise PassError(
                f"init has {len(self.init)} scales for {counted(len(order), 'group')}: give one, or one for each"
            )
        number = tensor("float32")
        rule = {"order": list(order), "window": self.window, "min": self.min, "max": self.max}
        for k in range(len(order)):
            wanted = self.init[k if len(self.init) > 1 else 0]
            octaves, steps = divmod(round(math.log2(wanted) * self.window), self.window)
            first = program.add_state(value_of(k), number, "loss-scale", scalar_tensor("float32", 2.0**octaves).data)
            first.info.update(rule, weights=list(members[k]))
            program.add_state(steps_of(k), number, "loss-scale", scalar_tensor("float32", steps).data)


def _scale(
    program: Program,
    graph: Graph,
    group_of: Mapping[str, int],
    order: Sequence[int],
    *,
    updates: bool,
    assume_linear: Sequence[str],
) -> tuple[int, int]:
    """Returns at how many places the derivative was multiplied, and at how many gradients leave the backward part."""
    parts = network_parts(graph)
    wanted = crossings(graph)
    own = _gradients(program, graph, parts, group_of)
    # What no weight is known to take is computed next to the loss, where every derivative comes from.
    group = {(user, i): own.get(user.operand(i), order[-1]) for user, i in wanted}
    places = _places(graph, parts, group, order, assume_linear)
    fx = Effects(graph)
    scales = _load(fx, order)
    for positions, seeds in places.items():
        scale_seeds(graph, seeds, _factor(graph, scales, order, positions), scope=SCOPE)
    if updates:
        # Loaded anew: what the update side takes from the backward part would have to be carried to it.
        scales = _load(fx, order)
        # A constant has no derivative in it to be scaled.
        starts = [start for start in accumulated(graph) if not start.is_constant]
        sums = {use: group_of[start.weights[0]] for start in starts for use in start.uses}
        divide_gradients(graph, {use: scales[k] for use, k in (sums or group).items()}, scope=SCOPE)
    # Copies: what is returned must not be the memory that the end of the cycle writes.
    shown = [(loss_scale_of(k), graph.create("TensorMove", [scales[k]], scope=SCOPE)) for k in sorted(order)]
    fx.commit(with_results(graph, shown))
    return sum(len(seeds) for seeds in places.values()), len({user.operand(i) for user, i in wanted})


def _places(
    graph: Graph,
    parts: Mapping[Node, str],
    group: Mapping[Use, int],
    order: Sequence[int],
    assume_linear: Sequence[str],
) -> dict[tuple[int, ...], list[Seed]]:
    """Where to multiply, by what: the seeds of all gradients of ``order[0]`` to ``order[p]``, for each p. A use that is
    in several of these sets (a connection that skips groups) is multiplied once, by what they are together.

    Each set alone multiplies its gradients and no others; factors multiply, so together they give each gradient the
    product over all sets that it is in."""
    together: dict[Use, list[int]] = {}
    for p in range(len(order)):
        inner = set(order[: p + 1])
        uses = [use for use, k in group.items() if k in inner]
        if uses:
            for seed in find_seeds(graph, parts, uses, assume_linear=assume_linear):
                for use in seed.uses:
                    together.setdefault(use, []).append(p)
    places: dict[tuple[int, ...], dict[Value, Seed]] = {}
    for (user, i), positions in together.items():
        value = user.operand(i)
        places.setdefault(tuple(positions), {}).setdefault(value, Seed(value)).uses.append((user, i))
    return {positions: list(seeds.values()) for positions, seeds in places.items()}


def _factor(graph: Graph, scales: Mapping[int, Value], order: Sequence[int], positions: Sequence[int]) -> Value:
    """The product of the ratios at ``positions``: at p the scale of ``order[p]`` to that of the next, to 1 at the
    last."""
    factor: Value | None = None
    ends = [p for p in positions if p + 1 not in positions]
    starts = [p for p in positions if p - 1 not in positions]
    for first, last in zip(starts, ends, strict=True):
        ratio = scales[order[first]]
        if last + 1 < len(order):
            ratio = graph.create("RealDiv", [ratio, scales[order[last + 1]]], scope=SCOPE)
        factor = ratio if factor is None else graph.create("Mul", [factor, ratio], scope=SCOPE)
    assert factor is not None
    return factor


def _load(fx: Effects, order: Sequence[int]) -> dict[int, Value]:
    return {k: fx.load(fx.graph.state(value_of(k), tensor("float32")), scope=SCOPE) for k in order}


def _gradients(
    program: Program, graph: Graph, parts: Mapping[Node, str], group_of: Mapping[str, int]
) -> dict[Value, int]:
    """The group of each gradient, as it leaves the backward part."""
    found: dict[Value, int] = {}
    for state, term in added_terms(graph):
        k = group_of.get(program.state[state].weight)
        if k is not None:
            found.update((value, k) for value in gradients_in(term, parts))
    if not is_fed(graph) and graph in updating_graphs(program):
        for path in gradient_paths(graph):
            for value in path.points[0].values:
                if path.weight in group_of:
                    found.setdefault(value, group_of[path.weight])
    return found
