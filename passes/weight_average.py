"""Weight average: a second, smoother set of weights that follows the trained ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.analysis.effects.effect_list import written_states
from ..ir.analysis.training.gradient_path import updating_graphs
from ..ir.builders.nodes import Nodes
from ..ir.core.data import Data, from_numpy
from ..ir.core.errors import OptionError, PassError
from ..ir.core.graph import Graph, Value
from ..ir.core.names import average_of
from ..ir.core.program import Program, StateVariable
from ..ir.core.report import PassResult
from ..ir.core.types import DType, TensorType, tensor
from ..ir.core.wording import counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.effects.outline import skip_where
from .framework.base import Pass
from .framework.options import option
from .step.matching import updated_weights
from .step.updates import count_updates, happened

EMA, SWA, LOOKAHEAD = "ema", "swa", "lookahead"
SCOPE = "weight-average"
UPDATES = "average_updates.count"
DECAY = {EMA: 0.999, LOOKAHEAD: 0.5}
EVERY = {EMA: 1, SWA: 1, LOOKAHEAD: 5}


class WeightAverage(Pass):
    """Keeps an average of the weights over the updates, for evaluation, export and checkpoints.

    The average of a weight is state of its own, ``average.<weight>``, and begins as a copy of it. It moves after each
    update that happens.

    ``kind=ema``: average = decay · average + (1 - decay) · weight; with ``warmup=W`` the decay of update n is decay ·
    (1 - exp(-n / W)). ``kind=swa``: the plain mean of the weights after every ``every``-th update, from ``warmup``
    updates on. ``kind=lookahead``: after every ``every``-th update the average takes a step of 1 - decay towards the
    weights, and the weights go on from there.

    Averages are float32. The decay is 0.999 unless given (0.5 for lookahead), and ``every`` is 1 (5 for lookahead).
    Running statistics are not averaged. ``boost-run --weights average`` and ``Session.weights`` use the averages.

    Preserves training bit for bit; ``kind=lookahead`` changes it.

    Source: Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992 (ema); Izmailov et al.,
    Averaging Weights Leads to Wider Optima, 2018 (swa); Zhang et al., Lookahead Optimizer, 2019; MindCV's EMA
    (warm-up).
    """

    name = "weight-average"
    late = True
    kind: str = option(EMA, help="how weights are averaged", choices=(EMA, SWA, LOOKAHEAD))
    decay: float | None = option(None, help="how much of the average stays", minimum=0, maximum=1)
    warmup: int = option(0, help="updates before the average is itself", minimum=0)
    every: int | None = option(None, help="moves at every so-many-th update", minimum=1)
    match: tuple[str, ...] = option(("*",), help="globs over the names of weights")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == SWA and self.decay is not None:
            raise OptionError(f"pass '{self.name}': kind=swa takes the plain mean, which has no decay")
        if self.kind == LOOKAHEAD:
            object.__setattr__(self, "preserves", False)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        if any(average_of(name) in program.state for name in program.state):
            raise PassError(
                "the program averages its weights already: ask for one weight-average, or for schedule-free-adamw alone"
            )
        updating = updating_graphs(program)
        averaged = updated_weights(
            program, updating, self.match, result, still="its average is itself", integer="integers have no average"
        )
        # The slow weights of Lookahead are a part of the optimizer: a frozen weight keeps them too.
        role = "slot" if self.kind == LOOKAHEAD else "average"
        for name in averaged:
            weight = program.state[name]
            wide = TensorType(DType.FLOAT32, weight.shape)
            program.add_state(average_of(name), wide, role, _widened(weight), name)
        if averaged and self._counts:
            program.add_state(UPDATES, tensor("int32"), role)
        for graph in updating if averaged else ():
            self._put(program, graph, averaged)
        result.matched = result.changed = len(averaged)
        elements = sum(program.state[name].type.size for name in averaged)
        result.statistics = {"weights averaged": len(averaged), "elements": elements}
        result.summary = f"{counted(len(averaged), 'weight')} averaged ({self.kind})"
        return result

    @property
    def _every(self) -> int:
        return EVERY[self.kind] if self.every is None else self.every

    @property
    def _decay(self) -> float:
        """As float32: 1 - decay is then the difference that MindSpore computes."""
        given = DECAY.get(self.kind, 0.0) if self.decay is None else self.decay
        rounded: float = struct.unpack("<f", struct.pack("<f", given))[0]
        return rounded

    @property
    def _counts(self) -> bool:
        """Whether a move depends on how many updates there were."""
        return self.kind == SWA or self._every > 1 or self.warmup > 0

    def _put(self, program: Program, graph: Graph, weights: Sequence[str]) -> None:
        taken_place = happened(program, graph, scope=SCOPE)
        fx, n = Effects(graph), Nodes(graph, SCOPE)
        move = self._move(fx, taken_place)
        already = {e.node for e in fx.list}
        if self.kind == LOOKAHEAD:
            written = written_states(graph)
            weights = [name for name in weights if name in written]
        for name in weights:
            weight = graph.state(name)
            average = graph.state(average_of(name), program.state[average_of(name)].type)
            old = fx.load(average, scope=SCOPE)
            new = n.cast(fx.load(weight, scope=SCOPE, initial=False), DType.FLOAT32)
            mean = n.op("Add", n.op("Mul", old, move.kept), n.op("Mul", new, move.taken))
            fx.append("Assign", [average, mean], scope=SCOPE, sources=[weight])
            if self.kind == LOOKAHEAD:
                fx.append("Assign", [weight, n.cast(mean, program.state[name].dtype)], scope=SCOPE, sources=[weight])
        if move.condition is not None:
            moves = [e for e in fx.list if e.node not in already and not e.passive]
            idle = n.op("LogicalNot", move.condition)
            skip_where(fx, idle, moves, stay=[move.kept, move.taken], name="average", scope=SCOPE)
        fx.commit()

    def _move(self, fx: Effects, taken_place: Value | None) -> _Move:
        """The rule of this kind. Where it depends on the number of updates, this one is counted, if it has
        ``taken_place``."""
        n = Nodes(fx.graph, SCOPE)
        kept: Value = n.number(self._decay)
        taken: Value = n.number(1.0 - self._decay)
        if not self._counts:
            return _Move(taken_place, kept, taken)
        _, updates = count_updates(fx, UPDATES, taken_place, scope=SCOPE)
        since = n.op("Sub", updates, n.number(self.warmup, "int32")) if self.kind != EMA and self.warmup else updates
        due = n.op("Equal", n.op("FloorMod", since, n.number(self._every, "int32")), n.number(0, "int32"))
        if self.kind == EMA:
            if self.warmup:
                share = n.op("Div", n.cast(updates, DType.FLOAT32), n.number(self.warmup))
                grown = n.op("Sub", n.number(1.0), n.op("Exp", n.op("Neg", share)))
                kept = n.op("Mul", kept, grown)
                taken = n.op("Sub", n.number(1.0), kept)
        else:
            if self.kind == SWA:
                parts = n.op("Div", n.cast(since, DType.FLOAT32), n.number(self._every))
                taken = n.op("Div", n.number(1.0), parts)
            if self.warmup:
                follows = n.op("LessEqual", updates, n.number(self.warmup, "int32"))
                due = n.op("LogicalOr", due, follows)
                taken = n.op("Select", follows, n.number(1.0), taken)
            if self.kind == SWA or self.warmup:
                kept = n.op("Sub", n.number(1.0), taken)
        return _Move(due if taken_place is None else n.op("LogicalAnd", due, taken_place), kept, taken)


@dataclass(frozen=True, slots=True)
class _Move:
    """How an average moves: whether it does (None: always), and the shares of the old average and of the weight."""

    condition: Value | None
    kept: Value
    taken: Value


def _widened(weight: StateVariable) -> Data:
    """The initial value in float32; that of a float32 weight is shared."""
    if weight.dtype is DType.FLOAT32:
        return weight.data
    array = weight.initial
    if weight.dtype is DType.BFLOAT16:
        return from_numpy((array.astype("uint32") << 16).view("float32"))[1]
    return from_numpy(array.astype("float32"))[1]
