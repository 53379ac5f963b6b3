"""What comes out multiplied, if the uses that the caller wants are to be, and where the factor has to stand for that.

A component (a tensor, or an element of a tuple) *can* be multiplied by the operands that its node is linear in: this is
the way up from the wanted uses. It is *kept* if anything else is made of it: what leaves the graph, what is no factor
on that way, what these are made of. Of the rest nothing stands in the way, and a factor stands where the way ends.
Inside a function no factor is known, and none fits into a tuple: what would need one there is kept, too. Calls are
passed from results to functions and from their inputs to arguments, and recursion does no harm: what is assumed of a
function's result is what is shown of it. Linear in uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...core.errors import AnatomyError
from ...core.graph import Graph, GraphRef, Input, Node, Use, Value
from ...core.op import CALL, RETURN
from ...core.predicates import is_effect, is_float_tensor, written_operands
from ...core.sites import site
from ...core.walk import walk
from ..functions.closures import Path, element
from .components import Component, Zeros, leaves
from .derivative import TAIL, Derivative, Terms, home_of, not_linear
from .linear_operands import HIDDEN, sees_shape_only

Place = tuple[Node, int, Path]
"""A use of a component: the user, which operand, and the component's place in that operand."""
_PACKS = ("MakeTuple", "TupleGetItem", "Depend")
_THROUGH = (*_PACKS, "UpdateState", RETURN.name)


class Demand:
    """``uses``: those that are to be multiplied; ``multiplied``: the components that come out so. AnatomyError where
    the way back is not linear, or cannot be followed."""

    def __init__(self, derivative: Derivative, zeros: Zeros, terms: Terms, wanted: Iterable[Use]):
        self.graph, self.closures = derivative.graph, derivative.closures
        self.derivative, self.zeros, self.terms = derivative, zeros, terms
        self.wanted = dict.fromkeys(wanted)
        self.live = _live(self.graph) | {user for user, _ in self.wanted}
        self.errors: dict[Component, AnatomyError] = {}
        self.below: dict[Component, list[Place]] = {}
        """Of what can be multiplied, the uses that have to be for that."""
        starts = [(user, i, path) for user, i in self.wanted for path in leaves(user.operand(i).type)]
        starts = [use for use in starts if not self._is_zero(use)]
        others: list[Place] = []  # taken as they are
        for component in walk(_components(starts), self._up):
            if (below := self._passed(*component)) is not None:
                self.below[component] = below
            others += dict.fromkeys(self._made_of(*component)).keys() - set(below or ())
        self._keep(_components([*self._ends(), *others]), {})
        for component in self._reached(starts):
            if component in self.errors:
                raise self.errors[component]
        self._keep([c for c, uses in self.below.items() if not all(map(self._fits, uses))], self._above())
        self.multiplied = dict.fromkeys(self._reached(starts))
        self.uses = dict.fromkeys([*starts, *(use for c in self.multiplied for use in self.below[c])])
        self._check()

    def places(self) -> dict[Value, list[Use]]:
        """The values that take a factor, and for which uses."""
        found: dict[Value, list[Use]] = {}
        for user, i, path in self.uses:
            if _component(user.operand(i), path) not in self.multiplied:
                found.setdefault(user.operand(i), []).append((user, i))
        return found

    # -- up --------------------------------------------------------------------------------------------------

    def _up(self, component: Component) -> list[Component]:
        return _components(self.below.get(component, ()))

    def _reached(self, starts: Iterable[Place]) -> list[Component]:
        """Of what can be multiplied, that which wanted uses lead to."""
        return [c for c in walk(_components(starts), self._up) if c in self.below]

    def _ends(self) -> Iterator[Place]:
        """What results and effects take, and what computes sizes, truths or several tensors besides of the way."""
        yield from self._taken(self.graph._return, 0)
        wanting = {user for user, _ in self.wanted}
        for node in self.live:
            followed = node.op.name in _THROUGH or (node.op is CALL and node not in self.closures.open)
            if (
                followed
                or (node, ()) in self.below
                or (is_float_tensor(node) and not is_effect(node) and node not in wanting)
            ):
                continue
            for i in range(node.num_operands):
                if (node, i) not in self.closures.formals or node in self.closures.open:
                    yield from self._taken(node, i)

    def _taken(self, user: Node, i: int) -> Iterator[Place]:
        """What a node computes from: nothing that is zero, wanted, or of which it sees the shape alone."""
        if (user, i) not in self.wanted and not self.zeros.is_zero(user) and not sees_shape_only(user, i):
            uses = ((user, i, path) for path in leaves(user.operand(i).type))
            yield from (use for use in uses if not self._is_zero(use))

    def _made_of(self, value: Value, path: Path) -> list[Place]:
        """The uses by which a component is made of others, but for wanted ones."""
        uses: list[Place] = []
        if isinstance(value, Input):
            uses = [(node, i, path) for node, i in self.closures.bound.get(value, ()) if node in self.live]
        elif isinstance(value, Node) and not _is_whole(value):
            if value.op is CALL:
                uses = [(function._return, 0, path) for function in self.closures.targets[value]]
            elif value.op.name == "Depend":
                uses = [(value, 0, path)]
            elif value.op.name == "MakeTuple" and path and path[0] < value.num_operands:
                uses = [(value, path[0], path[1:])]
            elif (index := element(value)) is not None:
                uses = [(value, 0, (index, *path))]
        found = [use for use in uses if use[:2] not in self.wanted and not self._is_zero(use)]
        if isinstance(value, Node) and (not uses or value in self.closures.open):
            found += (use for i in range(value.num_operands) for use in self._taken(value, i))
        return found

    def _passed(self, value: Value, path: Path) -> list[Place] | None:
        """The uses that make a component come out multiplied; None where the derivative does not come by it."""
        if isinstance(value, Node) and value.op.name in HIDDEN:
            self.errors[value, path] = not_linear(value, "it takes derivatives from a workspace that no operand shows")
            return []
        packs = isinstance(value, Node) and value.op.name == "MakeTuple"
        if not isinstance(value, (Node, Input)) or (self.derivative.rank(value) < TAIL and not packs):
            return None
        made_of = self._made_of(value, path)
        if isinstance(value, Input) or packs or value.op.name == "Depend":
            return made_of
        if value.op.name == "TupleGetItem":
            return None if element(value) is None else made_of
        if value.op is CALL:
            if value in self.closures.open or not self.closures.targets[value]:
                self.errors[value, path] = AnatomyError(
                    f"graph '{home_of(value)}': the derivative passes through the call {site(value)}, and "
                    "which functions that reaches cannot be told: the backward part cannot be followed. Take the "
                    "control flow that the closure comes from out of the differentiated network."
                )
            return made_of
        try:
            positions = self.terms.of(value)
        except AnatomyError as error:
            self.errors[value, path] = error
            return []
        return None if positions is None else [use for use in made_of if use[1] in positions]

    # -- what stands in the way ------------------------------------------------------------------------------

    def _keep(self, kept: Iterable[Component], above: Mapping[Component, list[Component]]) -> None:
        """Takes out what can be multiplied of these, of what they are made of, and of what is made of them."""
        for component in walk(kept, lambda c: [*_components(self._made_of(*c)), *above.get(c, ())]):
            self.below.pop(component, None)

    def _fits(self, use: Place) -> bool:
        """Whether an operand is multiplied, or can take a factor at this use."""
        user, i, path = use
        return _component(user.operand(i), path) in self.below or (user.graph is self.graph and not path)

    def _above(self) -> dict[Component, list[Component]]:
        """What is made of a component where no factor can stand."""
        above: dict[Component, list[Component]] = {}
        for component, below in self.below.items():
            for user, i, path in below:
                if user.graph is not self.graph or path:
                    above.setdefault(_component(user.operand(i), path), []).append(component)
        return above

    def _check(self) -> None:
        """AnatomyError where a factor would have to stand where none can, or unknown calls reach what is multiplied."""
        for user, i, path in self.uses:
            if _component(user.operand(i), path) in self.multiplied:
                continue
            where = f"graph '{self.graph.name}': "
            if user.graph is not self.graph:
                raise AnatomyError(
                    f"{where}the gradient that {site(user)} takes is computed inside function '{home_of(user)}', where "
                    "no loss scale is known. Take gradients outside of branches and loops."
                )
            if path:
                raise AnatomyError(
                    f"{where}operand {i} of {site(user)} is a tuple that holds the derivative, and cannot be taken "
                    "apart here"
                )
            if i in written_operands(user):
                raise AnatomyError(
                    f"{where}{site(user)} writes its operand {i} in place, so that must have been multiplied "
                    "before it: not supported"
                )
        if self.closures.open and any(isinstance(v, Node) and v.op is CALL for v, _ in self.multiplied):
            call = next(iter(self.closures.open))
            raise AnatomyError(
                f"graph '{home_of(call)}': which functions {site(call)} reaches cannot be told, so neither can be what "
                "else calls those that the derivative passes through"
            )

    def _is_zero(self, use: Place) -> bool:
        return self.zeros.is_zero(use[0].operand(use[1]), use[2])


def _is_whole(value: Value) -> bool:
    """Whether all elements of a value are multiplied, or none: those of a primitive."""
    return isinstance(value, Node) and value.op.name not in _PACKS and value.op is not CALL


def _component(value: Value, path: Path) -> Component:
    return (value, ()) if _is_whole(value) else (value, path)


def _components(uses: Iterable[Place]) -> list[Component]:
    return [_component(user.operand(i), path) for user, i, path in uses]


def _live(main: Graph) -> set[Node]:
    def needed(node: Node) -> list[Node]:
        values = (v.graph._return if isinstance(v, GraphRef) else v for v in node._operands)
        return [v for v in values if isinstance(v, Node)]

    return set(walk([main._return], needed))
