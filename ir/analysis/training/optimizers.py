"""What the optimizers of a training cell are handed, and what goes where another optimizer takes the place of one.

The boundary is the optimizer's cell (:mod:`.cells`). What is computed outside of it (masks, noise, clipping) is the
training cell's: the optimizer is handed the outcome. For example, ``%masked`` here, and ``%m`` is the optimizer's own::

    state %w: float32[2]
    state %m: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] scope("Default/net-Net/Load-op0") primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] scope("Default/net-Net/Mul-op0") primal {unique_id = "2"}
      %g = Mul(%x, %x) : float32[2] scope("Gradients/Default/net-Net/Mul-op0") primal {forward_unique_id = "2"}
      %masked = Sign(%g) : float32[2] scope("Default/Sign-op0")
      %m0 = Load(%m, umonad) : float32[2] scope("Default/optimizer-Own/Load-op0")
      %mean = Add(%m0, %masked) : float32[2] scope("Default/optimizer-Own/Add-op0")
      %kept = Assign(%m, %mean, umonad) : float32[2] scope("Default/optimizer-Own/Assign-op0")
      %new = AssignSub(%w, %mean, umonad) : float32[2] scope("Default/optimizer-Own/AssignSub-op0")
      %t = UpdateState(umonad, %kept, %new)
      %result = Depend(%y, %t)
      return %result
    }

A training cell that applies an optimizer's primitive by itself hands it the operand that the primitive takes for the
gradient. One that writes its weights in any other way has no optimizer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ...core.errors import AnatomyError
from ...core.graph import Graph, GraphRef, Input, Node, State, Value
from ...core.names import STAGE
from ...core.op import CALL
from ...core.predicates import is_optimizer
from ...core.primitives import Family, named
from ...core.sites import site
from ...core.types import TensorType
from ...core.walk import carried_operands, through, walk
from ..effects.state_access import Effect
from ..functions.calls import called_functions
from .anatomy import TrainingAnatomy
from .cells import Cells, cell_of, outwards
from .gradient_sources import ASSIGNING, GradientSources, handed
from .interpretation import LEAF, Term
from .network import BACKWARD, FORWARD
from .update_side import nodes_of
from .weights import WeightInfo

_READING = named(Family.COPY, Family.TUPLE) | {"Load", "Depend"}
"""What reads and packs: the exporter puts it wherever it likes."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A weight that an optimizer updates. ``cell``: the optimizer's; "" where the training cell applies a primitive by
    itself. ``values``: what it takes for the gradient, which is their sum. ``steps``: the writes that take it."""

    weight: str
    cell: str
    values: tuple[Value, ...]
    steps: tuple[Node, ...]


class Optimizers:
    """The optimizers of a graph that no pass has cut."""

    def __init__(self, found: TrainingAnatomy):
        self.found = found
        network = {node: part for node, part in found.parts.items() if part in (FORWARD, BACKWARD)}
        self._cells = Cells(network)
        self._side = found.side
        self._sources = GradientSources(network, found.side.read)
        told = {self._cells.optimizer(node) for info in found.weights for node in info.updates}
        self._kinds = {_kind(cell) for cell in told if cell}
        around = {outer for cell in told if cell for outer in outwards(cell)}
        of_network = {
            outer for node in network if network[node] in (FORWARD, BACKWARD) for outer in outwards(cell_of(node))
        }
        self._doubtful = of_network - around

    def handed(self, info: WeightInfo) -> Handed | None:
        """What an optimizer is handed for a weight; None where the training cell updates it by itself, or an optimizer
        without a gradient. AnatomyError where it cannot be told."""
        cells = {cell: None for node in info.updates if (cell := self._cell(node))}
        if len(cells) > 1:
            raise AnatomyError(
                f"{' and '.join(cells)} both update weight '{info.name}', and another optimizer cannot be both"
            )
        if cells:
            cell = next(iter(cells))
            updates = [node for node in info.updates if self._cell(node) == cell]
        else:
            cell, updates = "", [node for node in info.updates if is_optimizer(node)]
            if not updates:
                return None
        taken = {node: values for node in updates if (values := self._values(info, cell, node))}
        if not taken:
            return None
        values = list(dict.fromkeys(value for some in taken.values() for value in some))
        if len(values) > 1:
            if not set(values) <= set(info.gradient):
                raise AnatomyError(
                    f"several values are the gradient of weight '{info.name}' that the optimizer {cell} takes "
                    f"({', '.join(v.name for v in values)}), and which of them is to be handed to another cannot be "
                    "told: hand it one"
                )
            values = [gradient for gradient in info.gradient if gradient in values]
        return Handed(info.name, cell, tuple(values), tuple(taken))

    def has(self, info: WeightInfo) -> bool:
        """Whether an optimizer updates a weight, with a gradient or without one."""
        return any(self._cell(node) or is_optimizer(node) for node in info.updates)

    def without_gradient(self) -> list[str]:
        """The states that the network reads and an optimizer writes, and that are no weights with a gradient."""
        known = {name for info in self.found.weights for name in (info.name, *info.slots, *info.copies)}
        return [
            name for name, versions in self._side.versions.items()
            if name in self._side.read and name not in known
            and any(self._inside(n, "any", n) for n in nodes_of(versions))
        ]  # fmt: skip

    def _cell(self, write: Node, handed: Collection[Value] = ()) -> str | None:
        """The optimizer that writes a state; None for the training cell. ``ops.assign`` may carry the scope of its
        first use: what it writes has to be computed in the optimizer too, or to be ``handed`` to it."""
        if write.op.name in ASSIGNING:
            value = through(write.operand(1), ("Depend", "Load", "TensorMove"))
            if isinstance(value, Node) and value not in handed and not self._inside(value, "any", value):
                return None
        return self._cells.optimizer(write)

    def cells_of(self, effect: Effect, handed: Collection[Value]) -> set[str | None]:
        """The optimizers that an effect is a part of; None for what is the training cell's."""
        node = effect.node
        if node.op is not CALL:
            return {self._cell(node, handed)}
        written = {write.node for write in self._side.done.writes}
        return {self._cell(n, handed) for f in reached(node) for n in f if n in written}

    def leaving(
        self, effects: Sequence[Effect], handed: Sequence[Handed], results: Sequence[Value]
    ) -> tuple[list[Effect], set[Value]]:
        """The effects that go with the updates of weights: all that is in their optimizers, but for what other weights
        and anything outside need. Besides, all that is needed then. AnatomyError where an update cannot go."""
        weights = {h.weight for h in handed}
        cells = {_kind(h.cell) for h in handed if h.cell}
        steps = {node for h in handed for node in h.steps}

        values = {value for h in handed for value in h.values}

        def is_inside(effect: Effect) -> bool:
            parts = self.cells_of(effect, values)
            return effect.node in steps or (None not in parts and {_kind(part) for part in parts if part} <= cells)

        inside = [e for e in effects if e.writes and not (e.passive or e.io) and is_inside(e)]
        others = [e for e in inside if {state.name for state in e.writes} - weights & self._side.read]
        updates = [e.node for e in inside if {state.name for state in e.writes} & weights]
        served = {value.name for value in _needed(updates, ()) if isinstance(value, State)}

        def may_go(effect: Effect) -> bool:
            """What no weight's update takes, a count of steps, goes with the whole optimizer alone."""
            return effect not in others and (not others or {state.name for state in effect.writes} <= served)

        going = [e for e in inside if may_go(e)]
        while True:
            nodes = {e.node for e in going}
            staying = [e.node for e in effects if not e.passive and e.node not in nodes]
            needed = _needed([*results, *(v for h in handed for v in h.values), *staying], nodes)
            read = {value.name for value in needed if isinstance(value, State)} - weights
            stay = [e for e in going if e.node in needed or any(state.name in read for state in e.writes)]
            if not stay:
                break
            going = [e for e in going if e not in stay]
        stepping: dict[str, Node] = {}
        for effect in effects:
            parts = {n for f in reached(effect.node) for n in f} if effect.node.op is CALL else {effect.node}
            if effect.passive or steps.isdisjoint(parts):
                continue
            if effect not in going:
                raise AnatomyError(self._stays(effect, weights, needed))
            for name in weights.intersection(state.name for state in effect.writes):
                if (other := stepping.setdefault(name, effect.node)) is not effect.node:
                    raise AnatomyError(
                        f"weight '{name}' is updated twice in a step (by {site(other)} and {site(effect.node)}), and "
                        "another optimizer would update it once: call the optimizer once in a step"
                    )
        return going, needed

    def _stays(self, effect: Effect, weights: set[str], needed: Collection[Value]) -> str:
        """Why an effect that updates weights cannot go."""
        written = {state.name for state in effect.writes}
        updated, beside = min(written & weights, default="a weight"), written - weights
        if others := beside & self._side.read:
            return f"{site(effect.node)} updates '{min(others)}' together with the weights: name both in match"
        if read := beside & {value.name for value in needed if isinstance(value, State)}:
            return (
                f"{site(effect.node)} updates '{updated}' and '{min(read)}', which the training cell reads besides, so "
                "that the optimizer cannot go: leave that out of the training cell"
            )
        return (
            f"{site(effect.node)} updates '{updated}', and the training cell takes more from it than the update: leave "
            "that out of the training cell"
        )

    # -- what an update takes --------------------------------------------------------------------------------

    def _values(self, info: WeightInfo, cell: str, update: Node) -> list[Value]:
        """The values from outside of an optimizer that one of its updates takes for the gradient."""
        for linear, reshaped in ((True, False), (False, False), (False, True)):
            found = self._from_outside(info, cell, update, linear, reshaped)
            terms = [t for t in found if self._follows(t, info)] or [t for t in found if t.name != "Load"] or found
            if values := list(dict.fromkeys(term.value for term in terms)) or list(info.fixed):
                return values
        return []

    def _from_outside(self, info: WeightInfo, cell: str, update: Node, linear: bool, reshaped: bool) -> list[Term]:
        writes = self._side.done.writes
        left = [v.state for w in writes if self._inside(w.node, cell, update) for v in w.versions]
        own = {info.name, *(state.name for state in left if state is not None)}

        def passes(term: Term) -> bool:
            if term.name == "Load":
                read = term.operands[0].state
                return read is not None and read.name in own
            if term.state is not None or not isinstance(term.value, Node):
                return True
            return term.kind != LEAF and computes(term.value)

        def computes(value: Value) -> bool:
            """Whether an optimizer has computed a value, or it only hands on."""
            if not isinstance(value, Node):
                return isinstance(value, Input)
            if value.op.name in ("TupleGetItem", "list_getitem"):
                return computes(value.operand(0))
            inside = (n for f in reached(value) for n in f) if value.op is CALL else (value,)
            return value.op.name in _READING or any(self._inside(node, cell, update) for node in inside)

        def above(term: Term) -> Sequence[Term]:
            return self._sources.above(term, linear=linear, reshaped=reshaped) if passes(term) else ()

        starts = [t for v in self._side.versions[info.name] if v.value is update for t in handed(v)]
        visited = list(walk(starts, above))
        found = {t.value: t for t in visited if isinstance(t.value, Node) and not passes(t)}
        for node in (t.value for t in visited):
            if not isinstance(node, Node) or not self._is_doubtful(node):
                continue
            beside = [o for o in carried_operands(node) if o not in found]
            states = {v.name for v in walk(beside, carried_operands) if isinstance(v, State)}
            numbers = bool(beside) and all(getattr(o.type, "size", 1) == 1 for o in beside)
            if len(beside) < len(carried_operands(node)) and not numbers and states.isdisjoint(own):
                raise AnatomyError(
                    f"{site(node)} may be a part of the optimizer of '{info.name}' or stand before it: its scope is "
                    "where the operator was used first. Write it by a primitive (ops.Mul() for *)"
                )
        return [term for term in found.values() if isinstance(term.value.type, TensorType)]

    def _inside(self, node: Node, cell: str, update: Node) -> bool:
        """Whether a node is a part of an optimizer, and not of a pass. Where there are several of one class, the
        exporter may write the name of either on what they compute alike."""
        if not cell or STAGE in node.marks:
            return node is update
        return self._is_doubtful(node) or any(kind in self._kinds for kind in map(_kind, outwards(cell_of(node))))

    def _is_doubtful(self, node: Node) -> bool:
        """Whether the scope of a node tells nothing: that of an operator of Python is where it was used first."""
        return not self._is_network(node) and cell_of(node) in self._doubtful

    def _is_network(self, value: Value) -> bool:
        return isinstance(value, Node) and self.found.part(value) in (FORWARD, BACKWARD)

    def _follows(self, term: Term, info: WeightInfo) -> bool:
        """Whether a value is computed from the gradient that the backward part has for a weight."""

        def above(here: Term) -> Sequence[Term]:
            first = here.kind == LEAF and here.state is not None
            return self._side.versions.get(here.value.name, ()) if first else here.operands

        return any(here.value in info.gradient for here in walk([term], above))


def _kind(cell: str) -> tuple[str, str]:
    """The class of a cell (``optimizer-Momentum`` is one of Momentum), and where it stands."""
    outer, _, own = cell.rpartition("/")
    return outer, own.rpartition("-")[2]


def _needed(values: Iterable[Value], going: Collection[Node]) -> set[Value]:
    """What values are computed from, with those of ``going`` whose results are taken, but not what these take."""

    def above(value: Value) -> Sequence[Value]:
        return () if value in going else carried_operands(value)

    return set(walk(values, above))


def reached(call: Node) -> Iterable[Graph]:
    """The functions that a call leads to."""

    def inner(function: Graph) -> Iterable[Graph]:
        return [v.graph for node in function for v in node.operands if isinstance(v, GraphRef)]

    return walk(called_functions(call), inner)
