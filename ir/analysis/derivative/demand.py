"""The demand for multiplied values, walked from the gradients up to where the derivative begins.

One attempt (:class:`Demand`) decides of each use whether it must be multiplied, and of each component whether it comes
out multiplied by itself. It may turn out that something beyond a function or a node would have to be multiplied and
cannot be (:meth:`Demand.contradictions`): the next attempt does not pass through these.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ...core.errors import AnatomyError
from ...core.graph import Graph, Input, Node, Value
from ...core.op import CALL
from ...core.predicates import is_float_tensor, written_operands
from ...core.sites import site
from ..functions.closures import Closures, Path, element, unpacked
from .components import Component, Zeros, leaves
from .derivative import TAIL, Derivative
from .linear_operands import HIDDEN
from .terms import Terms, home_of, not_linear
from .use_counts import UseCounts

Use = tuple[Node, int, Path]
"""A user of a component, by operand index and the component's place in that operand."""


@dataclass(frozen=True)
class Plan:
    """Facts that no attempt changes. ``wanted``: the uses to multiply. ``owner``: the function of each input."""

    graph: Graph
    derivative: Derivative
    closures: Closures
    zeros: Zeros
    uses: UseCounts
    terms: Terms
    wanted: dict[tuple[Node, int], None]
    owner: dict[Value, Graph]


class Demand:
    """One attempt: every use that must be multiplied, and every component that comes out multiplied by itself.
    ``refused``: where earlier attempts could not pass (functions, nodes), and what they guessed wrongly."""

    def __init__(self, plan: Plan, refused: AbstractSet[object]):
        self.plan = plan
        self.refused = refused
        self.uses: dict[Use, Component | None] = {}
        """Every demanded use, with the component that demands it (None: the caller)."""
        self.scaled: set[Component] = set()
        self.results: dict[tuple[Graph, Path], None] = {}
        self.remaining: dict[Component, int] = {}
        self.waiting: dict[Node, int] = {}
        self.ready: list[Component] = []
        for user, i in plan.wanted:
            for path in leaves(user.operand(i).type):
                self._want((user, i, path), None)
        self.guessed: dict[tuple[Graph, Path], None] = {}
        self._walk()
        while self._guess():
            self._walk()

    # -- walking up ------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        while self.ready:
            self._pass(self.ready.pop())

    def _guess(self) -> bool:
        """Demands what else is taken of the results of functions that the derivative passes through, if it is made of
        the derivative: between calls of a recursion a demand may have only itself for a cause."""
        guesses = [
            (function, path)
            for function in dict.fromkeys(function for function, _ in self.results)
            for path in self.plan.uses.taken.get(function, ())
            if (function, path) not in self.results and (function, path) not in self.refused
            if self.plan.derivative.rank(unpacked(function.result, path)) >= TAIL
        ]
        for function, path in guesses:
            self.results[function, path] = self.guessed[function, path] = None
            self._want((function._return, 0, path), None)
        return bool(guesses)

    def _want(self, use: Use, cause: Component | None) -> None:
        user, i, path = use
        component = (user.operand(i), path)
        if use in self.uses or self.plan.zeros.is_zero(*component):
            return
        self.uses[use] = cause
        value = component[0]
        count = self.plan.uses.counts.get(value, {}).get(path)
        if count is None:
            return
        first = component not in self.remaining
        left = self.remaining[component] = self.remaining.get(component, count) - 1
        # Of an input all uses are taken to agree, since recursion may stand between them; it is checked at the end.
        if first if isinstance(value, Input) else left == 0:
            self.ready.append(component)

    def _pass(self, component: Component) -> None:
        """The uses that make a fully demanded component come out multiplied."""
        value, path = component
        if isinstance(value, Node) and value.op.name in HIDDEN:
            raise not_linear(value, "it takes derivatives from a workspace that no operand shows")
        if self.plan.derivative.rank(value) < TAIL and not (isinstance(value, Node) and value.op.name == "MakeTuple"):
            return
        if isinstance(value, Input):
            if self.plan.owner[value] not in self.refused:
                sites = self.plan.closures.bound.get(value, ())
                self._settle(component, [(node, i, path) for node, i in sites if node in self.plan.uses.live])
            return
        assert isinstance(value, Node)
        if value in self.refused:
            return
        name = value.op.name
        if name == "Depend":
            self._settle(component, [(value, 0, path)])
        elif name == "MakeTuple":
            self._settle(component, [(value, path[0], path[1:])])
        elif name == "TupleGetItem":
            index = element(value)
            if index is not None and not self._ends_at(value.operand(0)):
                self._settle(component, [(value, 0, (index, *path))])
        elif value.op is CALL:
            self._pass_call(value, path)
        else:
            self._pass_primitive(value)

    def _ends_at(self, source: Value) -> bool:
        """Whether a tuple's elements must be multiplied after they are taken out of it."""
        return source in self.refused or (
            isinstance(source, Node)
            and source.op is CALL
            and any(function in self.refused for function in self.plan.closures.targets[source])
        )

    def _settle(self, component: Component, uses: list[Use]) -> None:
        self.scaled.add(component)
        for use in uses:
            self._want(use, component)

    def _pass_call(self, call: Node, path: Path) -> None:
        functions = self.plan.closures.targets[call]
        if self._ends_at(call):
            return
        if call in self.plan.closures.open or not functions:
            raise AnatomyError(
                f"graph '{home_of(call)}': the derivative passes through the call {site(call)}, and "
                "which functions that reaches cannot be told: the backward part cannot be followed. Take the control "
                "flow that the closure comes from out of the differentiated network."
            )
        self.scaled.add((call, path))
        for function in functions:
            if (function, path) not in self.results:
                self.results[function, path] = None
                self._want((function._return, 0, path), (call, path))

    def _pass_primitive(self, node: Node) -> None:
        """A primitive's elements all come out multiplied, or none does."""
        counts = self.plan.uses.counts[node]
        waiting = self.waiting.get(node)
        waiting = sum(1 for n in counts.values() if n) - 1 if waiting is None else waiting - 1
        self.waiting[node] = waiting
        if waiting:
            return
        positions = self.plan.terms.of(node)
        if positions is None:
            return
        self.scaled.update((node, path) for path in counts)
        cause = (node, next(iter(counts)))
        for i in positions:
            for path in leaves(node.operand(i).type):
                self._want((node, i, path), cause)

    # -- what came of it -------------------------------------------------------------------------------------

    def contradictions(self) -> set[object]:
        """Functions and nodes that must not be passed, for what would have to be multiplied beyond them cannot be."""
        if wrong := [guess for guess in self.guessed if not self._agreed(*guess)]:
            return set(wrong)
        found = self._unmet()
        # A guess may have led there.
        return set(self.guessed) if found and self.guessed else found

    def _agreed(self, function: Graph, path: Path) -> bool:
        """Whether all calls that take an element of a function's result want it multiplied."""
        uses = self.plan.uses
        calls = [call for call in self.plan.closures.callers.get(function, ()) if call in uses.live]
        return all((call, path) in self.scaled or not uses.counts[call].get(path, 0) for call in calls)

    def _unmet(self) -> set[object]:
        found: set[object] = set()
        main = self.plan.graph
        passed = {function for function, _ in self.results}
        for (user, i, path), cause in self.uses.items():
            value = user.operand(i)
            if (value, path) in self.scaled:
                continue
            home = user.graph
            if home is main and not path:
                self._check_seed(user, i)
                continue
            news: set[object] = set()
            if home is not main:
                news.add(home)
            elif cause is not None:
                news.add(cause[0])
            if cause is not None and isinstance(cause[0], Input):
                news.add(self.plan.owner[cause[0]])
            if home is not main and home not in passed and not (cause is not None and isinstance(cause[0], Input)):
                raise AnatomyError(
                    f"graph '{main.name}': the gradient that {site(user)} takes is computed inside function "
                    f"'{home.name if home else '?'}', where no loss scale is known. Take gradients outside of "
                    "branches and loops."
                )
            if news <= self.refused:
                raise AnatomyError(
                    f"graph '{main.name}': operand {i} of {site(user)} is a tuple that holds the "
                    "derivative, and cannot be taken apart here"
                )
            found |= news
        found |= {function for function, path in self.results if not self._agreed(function, path)}
        for value, path in self.scaled:
            if isinstance(value, Input) and self.remaining[value, path]:
                found.add(self.plan.owner[value])
        if self.results and self.plan.closures.open:
            call = next(iter(self.plan.closures.open))
            raise AnatomyError(
                f"graph '{home_of(call)}': which functions {site(call)} reaches cannot be told, so neither can be what "
                "else calls those that the derivative passes through"
            )
        return found - self.refused

    def _check_seed(self, user: Node, i: int) -> None:
        value = user.operand(i)
        if not is_float_tensor(value):
            raise AnatomyError(
                f"{site(value)}, a use of {site(user)}, carries the derivative but is no tensor of floats"
            )
        if i in written_operands(user):
            raise AnatomyError(
                f"{site(user)} writes its operand {i} in place, which would have to be multiplied "
                "before it: not supported"
            )

    def places(self) -> dict[Value, list[tuple[Node, int]]]:
        """The values to multiply, and for which uses."""
        found: dict[Value, list[tuple[Node, int]]] = {}
        for user, i, path in self.uses:
            value = user.operand(i)
            if (value, path) not in self.scaled:
                found.setdefault(value, []).append((user, i))
        return found
