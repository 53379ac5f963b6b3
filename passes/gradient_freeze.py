"""Gradient freeze: in some cycles the first layers are not trained, and their backward part is not computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir.analysis.cost.flops import estimated_flops
from ..ir.analysis.training.gradient_path import updating_graphs
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import OptionError, PassError, nearest
from ..ir.core.graph import Graph
from ..ir.core.program import Program, variant_name
from ..ir.core.report import PassResult
from ..ir.core.types import tensor
from ..ir.core.variants import CONTINUOUS, INTERVAL, LISTED, LONGEST, SEEDS, Choice
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.seeds import separate_draws
from .framework.base import Pass
from .framework.options import option
from .step.depth import divided, layers_by_depth, matches
from .step.freezing import frozen_copy, sharing

CYCLE = "freeze.cycle"
SCOPE = "gradient-freeze"
ROUND_ROBIN = "round-robin"


class GradientFreeze(Pass):
    """Leaves the first layers as they are in some windows, and does not compute their gradients.

    The pass orders the trained weights by where the forward part first uses them, and puts them into layers. The
    program gets ``groups`` variants. Number k freezes the first k/groups of the layers: their weights and optimizer
    state keep every bit. ``train`` gives the groups by hand instead: globs over the names of weights (several in one:
    ``"fc*|head*"``).

    The variant of a window follows ``mindspore.boost.GradientFreeze``. ``type=continuous`` trains everything for a
    while, then freezes more and more; ``type=interval`` alternates. ``probability`` is the share of windows that train
    everything, ``total_steps`` the windows that the sequence is made for. ``type=round-robin`` takes the groups in
    turn. ``strategy`` lists the group of each window by hand. After the sequence everything trains; with
    ``after=repeat`` it begins again. State: ``freeze.cycle`` counts windows.

    Changes training.

    Source: ``mindspore.boost.GradientFreeze``. Here groups follow depth and not names.
    """

    name = "gradient-freeze"
    preserves = False
    late = True
    groups: int = option(4, help="how many variants, that of the whole network included", minimum=2)
    train: tuple[str, ...] = option((), help="globs instead: the weights that each group trains")
    type: str = option(INTERVAL, help="the order of frozen windows", choices=(CONTINUOUS, INTERVAL, ROUND_ROBIN))
    strategy: tuple[int, ...] = option((), help="the group of each window instead, from 0", minimum=0)
    after: str = option(
        "train", help="after the sequence train everything, or begin it again", choices=("train", "repeat")
    )
    probability: float = option(0.5, help="share of the windows that train everything", minimum=0, maximum=0.99)
    total_steps: int = option(2000, help="windows of the whole training", minimum=1, maximum=LONGEST // 2)
    seed: int = option(0, help="of the random sequence (type=interval)", minimum=0, maximum=SEEDS - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train and len(self.train) < 2:
            raise OptionError(f"pass '{self.name}': one group never changes: give train two globs or more")
        groups = len(self.train) or self.groups
        wrong = next((k for k in self.strategy if k >= groups), None)
        if wrong is not None:
            raise OptionError(
                f"pass '{self.name}': strategy names group {wrong}; of {counted(groups, 'group')} the last is "
                f"{groups - 1}"
            )

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if program.schedule.choice is not None:
            raise PassError("the program has variants already: ask for gradient-freeze once")
        updating = {g.name for g in updating_graphs(program)}
        layers = layers_by_depth(program)
        variants, numbers = self._variants(layers, result)
        choice = self._choice(len(variants), numbers)
        base = {name: graph for name, graph in program.graphs.items() if name in program.schedule.graphs()}
        program.add_state(CYCLE, tensor("int32"), "counter")
        for graph in base.values():
            if graph.name in updating or len(base) == 1:
                _count_cycle(graph)
        before = sum(estimated_flops(g) for g in base.values() if g.inputs)
        nodes = sum(len(g) for g in base.values())
        savings: list[str] = []
        for k, frozen in enumerate(variants[1:], 1):
            made = {}
            shared = sharing(base.values(), frozen)
            for name, graph in base.items():
                made[name] = frozen_copy(program, graph, variant_name(name, k), frozen, shared)
                program.graphs[made[name].name] = made[name]
            saved = 100 * (1 - sum(estimated_flops(g) for g in made.values() if g.inputs) / max(before, 1))
            fewer = nodes - sum(len(g) for g in made.values())
            result.statistics[f"variant {k}"] = (
                f"{counted(len(frozen), 'weight')} frozen, {counted(fewer, 'node')} and {saved:.0f} % of the "
                f"estimated FLOPs less"
            )
            savings.append(f"{len(frozen)} ({saved:.0f} %)")
            result.changed = max(result.changed, len(frozen))
        separate_draws(program)
        program.schedule = replace(program.schedule, choice=choice)
        result.matched = sum(map(len, layers))
        result.summary = (
            f"{counted(len(variants), 'variant')}; frozen of {counted(result.matched, 'weight')} (and estimated FLOPs "
            f"saved): {', '.join(savings)}"
        )
        return result

    def _variants(self, layers: Sequence[Sequence[str]], result: PassResult) -> tuple[list[set[str]], list[int]]:
        """The weights that each variant freezes, none in the first, and the variant of each group."""
        weights = [w for layer in layers for w in layer]
        if self.train:
            variants: list[set[str]] = [set()]
            numbers = []
            for globs in self.train:
                trained = {w for w in weights if matches(w, globs)}
                if not trained:
                    raise PassError(
                        f"group '{globs}' trains nothing: no weight has such a name{nearest(globs, weights)}"
                    )
                frozen = set(weights) - trained
                if frozen not in variants:
                    variants.append(frozen)
                numbers.append(variants.index(frozen))
            if len(variants) < 2:
                raise PassError(f"every group of {', '.join(self.train)} trains all {counted(len(weights), 'weight')}")
            return variants, numbers
        groups = divided(layers, self.groups, result, "there is no prefix to freeze")
        return [set().union(*groups[:k]) for k in range(len(groups))], list(range(len(groups)))

    def _choice(self, variants: int, numbers: Sequence[int]) -> Choice:
        """Which variant each cycle runs; ``numbers`` holds that of each group."""
        listed = self.strategy or (range(len(numbers)) if self.type == ROUND_ROBIN else ())
        wrong = next((k for k in listed if k >= len(numbers)), None)
        if wrong is not None:
            raise PassError(f"strategy names group {wrong}, but the network has only {counted(len(numbers), 'group')}")
        if listed:
            sequence = tuple(numbers[k] for k in listed)
            again = self.after == "repeat" or not self.strategy
            return Choice(variants, LISTED, 0.0, len(sequence), 0, CYCLE, sequence, again)
        cycles = int(self.total_steps * 1.01)
        return Choice(variants, self.type, self.probability, cycles, self.seed, CYCLE, repeat=self.after == "repeat")


def _count_cycle(graph: Graph) -> None:
    fx = Effects(graph)
    one = graph.constant(scalar_tensor("int32", 1))
    fx.append("AssignAdd", [graph.state(CYCLE, tensor("int32")), one], scope=SCOPE)
    fx.commit()
