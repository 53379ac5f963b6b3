"""Which of the states that an update side writes are weights, with their gradients and slots.

A state is a weight if forward or backward reads it, or an optimizer's primitive takes it for one, and a gradient stands
behind what is written: first one that is still a gradient, else anything that is made of one. For example::

    state %w: float32[2]
    state %m: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "3"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}     // the gradient of w
      %mean = AssignAdd(%m, %g, umonad) : float32[2]                     // a slot of w: the network does not read m
      %t0 = UpdateState(umonad, %mean)
      %m1 = Load(%m, %t0) : float32[2]
      %new = AssignSub(%w, %m1, %t0) : float32[2]                        // the update of w, by way of m
      %t = UpdateState(%t0, %new)
      %result = Depend(%loss, %t)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...core.attributes import TensorValue
from ...core.errors import AnatomyError
from ...core.graph import Constant, Input, Node, Value
from ...core.primitives import Family, facts, named
from ...core.sites import site
from ...core.types import TensorType
from ...core.walk import walk
from .gradient_sources import GradientSources, handed, is_array
from .interpretation import LEAF, OPERATION, READ, Term
from .network import BACKWARD, FORWARD
from .update_side import UpdateSide, nodes_of

_SUMMING = named(Family.SUM, Family.CAST, Family.COPY, Family.TUPLE)


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """One trained weight. ``gradient``: the backward values whose sum is its gradient. ``updates``: the nodes that
    write it. ``slots``: state that the same update keeps. ``copies``: state that the network reads, and that the update
    side writes from the weight (a target network). A weight on which the loss does not depend, or depends linearly, may
    have no ``gradient``: its update takes ``fixed`` values that no backward node made, constants or of the forward part
    (:mod:`ir.rewrite.settle_gradients` makes such a one a gradient). ``sparse``: the gradient is rows, which indices
    bring to their places: the same place may come twice."""

    name: str
    gradient: tuple[Node, ...]
    updates: tuple[Node, ...]
    slots: tuple[str, ...]
    fixed: tuple[Value, ...] = ()
    copies: tuple[str, ...] = ()
    sparse: bool = False


def find_weights(side: UpdateSide) -> list[WeightInfo]:
    """The trained weights of a graph; AnatomyError where a gradient cannot be told."""
    return _Weights(side).find()


class _Weights:
    def __init__(self, side: UpdateSide):
        self.side = side
        self.sources = GradientSources(side.parts, side.read)
        self.hits: dict[str, dict[Node, None]] = {}

    def find(self) -> list[WeightInfo]:
        fixed: dict[str, tuple[Value, ...]] = {}
        for name, versions in self.side.versions.items():
            parameter = any(map(_is_parameter, versions))
            if name not in self.side.read and not parameter:
                continue
            found = {g: None for v in versions for g in self.sources.gradients(v, linear=True)}
            if found or parameter:
                self._refuse_accumulated(name, versions, found)
            if not found:
                found = {g: None for v in versions for g in self.sources.gradients(v, linear=False)}
            if not found and parameter:
                fixed[name] = self._fixed(versions)
            if found or fixed.get(name) or (parameter and self._takes_nothing(versions)):
                self.hits[name] = found
            elif parameter:
                raise AnatomyError(self._no_gradient(name, versions))
        self._disentangle(self.hits)
        served = self._served()
        read = self.side.read
        return [
            WeightInfo(
                name,
                tuple(found),
                tuple(nodes_of(self.side.versions[name])),
                tuple(s for s in served.get(name, ()) if s not in read),
                fixed.get(name, ()),
                tuple(s for s in served.get(name, ()) if s in read),
                any(map(self.sources.brings_rows, self.side.versions[name])),
            )
            for name, found in self.hits.items()
        ]

    def _refuse_accumulated(self, weight: str, versions: list[Term], found: Collection[Node]) -> None:
        """AnatomyError where the cell accumulates by itself: updates take state to which this step adds gradients, and
        which they do not reach by it, or only on a condition, to clear it then."""
        for version in versions:
            for term in self.sources.met(version, linear=True):
                name = term.state.name if term.state is not None else ""
                left = self.side.versions.get(name, ()) if name not in self.side.read else ()
                if len(left) < 2:
                    continue
                adding = [v for v in left if self.sources.gradients(v, linear=True)]
                on_condition = bool(adding) and len(self._guards[adding[0]]) < len(self._guards[version])
                cleared = on_condition and not all(any(self.sources.sources(v, linear=True)) for v in left)
                if adding and (cleared or not found):
                    raise AnatomyError(
                        f"graph '{self.side.graph.name}' accumulates already: it adds gradients up in state "
                        f"'{name}' (by %{adding[0].value.name}) and updates '{weight}' from there. Export the training "
                        "cell without accumulation of its own, and ask for gradient-accumulation; or leave out "
                        "the passes that work on gradients."
                    )

    @cached_property
    def _guards(self) -> dict[Term, tuple[Term, ...]]:
        return {version: write.guards for write in self.side.done.writes for version in write.versions}

    def _no_gradient(self, weight: str, versions: list[Term]) -> str:
        """Why an update has no gradient: the cell puts gradients into another shape, or takes none."""
        update = f"weight '{weight}': its update by {site(versions[0].value)}"
        above = walk([v for version in versions for v in handed(version)], lambda term: term.operands)
        if any(self.side.parts.get(term.value) == BACKWARD for term in above if isinstance(term.value, Node)):
            return (
                f"{update} takes what the cell makes of gradients in other shapes (joined to one tensor, say), and "
                "which part of it is the weight's gradient cannot be told: work on each gradient in its own shape, or "
                "leave out the passes that work on gradients"
            )
        return (
            f"{update} takes no gradient that MindSpore derived from the loss: take it by ops.value_and_grad or "
            "ops.GradOperation, or leave out the passes that work on gradients"
        )

    def _fixed(self, versions: list[Term]) -> tuple[Value, ...]:
        """What an update is handed where autodiff had nothing left to compute: a value of the forward part or an input,
        as a loss that is linear in the weight has for a derivative, another weight, or itself; else constants."""
        own = versions[0].state
        starts = [v for version in versions if _is_parameter(version) for v in handed(version)]
        computed: list[Value] = []
        itself: list[Value] = []
        constants: list[Value] = []
        kept = False  # the cell hands on what it has kept: the weight beside it is a decay
        bare = set(walk(starts, _summands))
        for term in walk(starts, self._to_reads):
            value = term.value
            if term.name == "Load":
                mine = term.operands[0].state is own
                if not self._is_network(term):
                    kept |= not mine
                elif not mine:
                    computed.append(value)
                elif term in bare:  # one that is multiplied by something is a decay
                    itself.append(value)
            elif term.state is not None:  # its memory, as it is when the update comes
                if term.kind == LEAF or term.state.name in self.side.read:
                    (itself if term.state is own else computed).append(term.state)
            elif isinstance(value, Constant) and isinstance(value.value, TensorValue):
                constants.append(value)
            elif self._is_network(term) or (isinstance(value, Input) and isinstance(value.type, TensorType)):
                computed.append(value)
        return tuple(dict.fromkeys(computed or (() if kept else itself or constants)))

    def _to_reads(self, term: Term) -> Sequence[Term]:
        return () if term.name == "Load" else self.sources.above(term, linear=True)

    def _is_network(self, term: Term) -> bool:
        return isinstance(term.value, Node) and self.side.parts.get(term.value) in (FORWARD, BACKWARD)

    def _takes_nothing(self, versions: list[Term]) -> bool:
        """Whether the updates take no value of this step's forward or backward: the loss does not depend on the
        weight, and the exporter put a constant in the place of its gradient."""
        starts = [v for version in versions for v in handed(version)]
        return not any(
            term.name != "Load"
            and (
                self._is_network(term)
                or isinstance(term.value, Input)
                or (term.kind == OPERATION and term.name == "call")
            )
            for term in walk(starts, lambda term: () if term.name == "Load" else term.operands)
        )

    def _disentangle(self, hits: dict[str, dict[Node, None]]) -> None:
        """A gradient belongs to one weight. Where weights of one shape meet on the update side (a norm over
        scalars), a value that is the only candidate of another weight is not this one's."""
        changed = True
        while changed:
            changed = False
            sole = {next(iter(found)): name for name, found in hits.items() if len(found) == 1}
            for name, found in hits.items():
                if len(found) > 1:
                    foreign = [g for g in found if g in sole and sole[g] != name]
                    if foreign and len(foreign) < len(found):
                        for g in foreign:
                            del found[g]
                        changed = True
        owners: dict[Node, str] = {}
        for name, found in hits.items():
            for g in found:
                other = owners.setdefault(g, name)
                if other != name and hits[other].keys() != found.keys():  # a weight and its tied copy share one sum
                    nodes = ", ".join(site(n) for n in found)
                    raise AnatomyError(
                        f"weights '{other}' and '{name}' both seem to use gradient {site(g)} (candidates: {nodes})"
                    )

    def _served(self) -> dict[str, list[str]]:
        """Slots and copies by weight: the other states that its update writes, and those whose own updates take its
        gradient or itself. A state that several weights share is a hyperparameter of the optimizer, not a slot."""
        owner: dict[Value, str] = {g: name for name, found in self.hits.items() for g in found}
        owner |= {node: name for name in self.hits for node in nodes_of(self.side.versions[name])}
        served: dict[str, list[str]] = {}
        for name, versions in self.side.versions.items():
            if name in self.hits:
                continue
            owners = {owner[v.value] for v in versions if v.value in owner}
            # First what keeps its shape (moments). A slot may have another one: sums over rows, a preconditioner.
            for reshaped in (False, True):
                for version in () if owners else versions:
                    for term in self.sources.sources(version, linear=False, reshaped=reshaped):
                        if term.state is not None and term.state.name in self.hits:
                            owners.add(term.state.name)
                        elif term.value in owner:
                            owners.add(owner[term.value])
            owners = owners or self._takers.get(name, set())
            if len(owners) == 1:
                served.setdefault(next(iter(owners)), []).append(name)
        return served

    @cached_property
    def _takers(self) -> dict[str, set[str]]:
        """Which weights' updates take a state of many elements, each for its own: a slot that is made of the gradient
        by way of other shapes (AdaMax's, of a row of two). One number may be anything that weights share (a loss
        scale)."""
        found: dict[str, set[str]] = {}
        for weight in self.hits:
            for version in self.side.versions[weight]:
                for term in self.sources.sources(version, linear=False):
                    if term.state is not None and is_array(term.state.type):
                        found.setdefault(term.state.name, set()).add(weight)
        return found


def _is_parameter(version: Term) -> bool:
    """Whether an optimizer's primitive leaves this version as the weight that it updates."""
    assert isinstance(version.value, Node)
    fact = facts(version.value.op)
    if fact.gradient is None or not fact.writes or version.name == "AdamNoUpdateParam":
        return False
    return version.operands[fact.writes[0]].state is version.state


def _summands(term: Term) -> Sequence[Term]:
    """What a value is a copy, or the sum, of."""
    if term.kind == READ:
        return () if term.name == "Load" else term.operands
    return term.operands if term.name in _SUMMING else ()
