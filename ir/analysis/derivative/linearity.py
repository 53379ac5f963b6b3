"""Where to multiply the backward part of a training graph so that every gradient comes out multiplied by the same
factor: at the *seeds*, as near to the loss as the graph shows to be right.

Exported graphs have no explicit derivative of the loss (it was 1, and folded). So the demand for a multiplied value
is walked from the gradients up to where they begin, one primitive at a time:

* a value is multiplied if all its uses are to be; what only some uses want is multiplied on the way to those;
* a demand passes a primitive by its entry in :mod:`.linear_operands`: all terms of a sum are demanded, one factor of a
  product (the one that carries the derivative, see :mod:`.derivative`);
* where nothing above carries the derivative any more, or it cannot be seen, the value is a seed;
* what carries the derivative into a primitive that is not linear in it is an error: gradients behind it would not be
  those of a multiplied loss.

Calls are passed in the same way, from their results into the functions and from the functions' inputs to the arguments.
That a loop's function calls itself does no harm: what is assumed of its result is what is shown of it, by induction
over the number of calls. A function has no factor to multiply with; where it would need one, the results of its calls
are multiplied instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from ...builders.cast import cast
from ...core.attributes import Number, TensorValue
from ...core.errors import AnatomyError
from ...core.graph import Constant, Graph, GraphRef, Input, Node, Value
from ...core.op import CALL, RETURN
from ...core.predicates import is_effect, written_operands
from ...core.types import DType, TensorType, TupleType, Type, is_monad
from ..functions.closures import Closures, Path, element
from .derivative import CARRIER, TAIL, Derivative
from .linear_operands import FILLS, HIDDEN, SHAPE_ONLY, ZEROS, linear_in

NO_VALUE = SHAPE_ONLY | {"UpdateState"}
"""Primitives that do not look at the elements of their operands."""
COMPLEX = (DType.COMPLEX64, DType.COMPLEX128)
Component = tuple[Value, Path]
"""A tensor: a value, or an element of the tuple that it is."""
Use = tuple[Node, int, Path]
"""A user of a component, by operand index and the component's place in that operand."""


@dataclass
class Seed:
    """``uses``, as (user, operand index), are to take ``value`` multiplied by the factor."""

    value: Value
    uses: list[tuple[Node, int]] = field(default_factory=list)


def find_seeds(
    graph: Graph,
    parts: Mapping[Node, str],
    wanted: Sequence[tuple[Node, int]],
    *,
    assume_linear: Collection[str] = (),
) -> list[Seed]:
    """The seeds whose multiplication multiplies exactly the ``wanted`` uses, given as (user, operand index).

    ``parts`` are the forward and backward nodes (:func:`.training.network_parts`). Primitives in ``assume_linear`` are
    taken as linear in the first operand that carries the derivative. :class:`AnatomyError` where the backward part is
    not linear or cannot be followed. The graph is not changed. Linear in nodes for each level of nested functions.
    """
    closures = Closures(graph)
    plan = _Plan(graph, Derivative(graph, parts, closures), closures, wanted, frozenset(assume_linear))
    refused: set[object] = set()
    while True:
        demand = _Demand(plan, refused)
        contradictions = demand.contradictions()
        if not contradictions:
            return demand.seeds()
        refused |= contradictions


def scale_seeds(graph: Graph, seeds: Sequence[Seed], factor: Value, *, scope: str) -> list[Node]:
    """Multiplies every seed by ``factor``, a float32 scalar tensor of the main graph, and returns the Muls.

    Half-precision seeds are multiplied in float32, where the factor itself cannot overflow, and cast back; for float64
    seeds the factor is cast.
    """
    made: list[Node] = []
    for seed in seeds:
        if not isinstance(seed.value.type, TensorType):
            raise AnatomyError(f"seed {seed.value!r} is no tensor: it cannot be multiplied")
        dtype = seed.value.type.dtype
        # A constant stands nowhere: what it is multiplied with decides.
        with graph.inserting_after(seed.value if isinstance(seed.value, Node) else factor):
            wide = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
            value = cast(graph, seed.value, wide, scope=scope)
            by = cast(graph, factor, wide, scope=scope)
            product = graph.create("Mul", [value, by], scope=scope, sources=[seed.value])
            scaled = cast(graph, product, dtype, scope=scope)
        made.append(product)
        for user, i in seed.uses:
            user.set_operand(i, scaled)
    if isinstance(factor, Node):
        graph.sort()  # the factor may have stood behind a seed
    return made


class _Plan:
    """What every attempt needs to know and none changes. ``counts``: how many uses of each component matter.
    ``zeros``: what is known to be zero. ``taken``: the elements of a function's result that some call takes."""

    def __init__(
        self,
        graph: Graph,
        derivative: Derivative,
        closures: Closures,
        wanted: Sequence[tuple[Node, int]],
        assumed: frozenset[str],
    ):
        self.graph = graph
        self.derivative = derivative
        self.closures = closures
        self.wanted = dict.fromkeys(wanted)
        self.assumed = assumed
        self.owner: dict[Value, Graph] = {formal: body for body in graph.all_graphs() for formal in body.inputs}
        self.live = _live(graph) | {user for user, _ in wanted}
        self.zeros: dict[Value, bool] = {}
        for body in graph.all_graphs():
            for node in body:
                self.zeros[node] = self._makes_zeros(node)
        self.formals: dict[tuple[Node, int], list[Input]] = {}
        for formal, sites in closures.bound.items():
            for site in sites:
                self.formals.setdefault(site, []).append(formal)
        self.counts: dict[Value, dict[Path, int]] = {}
        self.taken: dict[Graph, dict[Path, None]] = {}
        while self._count_all():
            pass

    def _count_all(self) -> bool:
        """Counts the uses, and says whether functions turn out to need more than was known when they were counted."""
        known = {formal for formal in self.owner if any(self.counts.get(formal, {}).values())}
        for body in self.graph.all_graphs():
            for node in reversed(body):
                self.counts[node] = self._count(node)
            if body is not self.graph:
                for formal in body.inputs:
                    self.counts[formal] = self._count(formal)
        taken: dict[Graph, dict[Path, None]] = {}
        for function, calls in self.closures.callers.items():
            for call in calls:
                if call in self.live:
                    taken.setdefault(function, {}).update((path, None) for path, n in self.counts[call].items() if n)
        news = taken != self.taken or known != {f for f in self.owner if any(self.counts.get(f, {}).values())}
        self.taken = taken
        return news

    def is_zero(self, value: Value, path: Path = ()) -> bool:
        """Whether a component is known to be zero, and so any multiple of itself."""
        while isinstance(value, Node) and value.op.name == "MakeTuple" and path:
            value, path = value.operand(path[0]), path[1:]
        if value not in self.zeros:
            self.zeros[value] = _is_zero_constant(value)
        return self.zeros[value]

    def _makes_zeros(self, node: Node) -> bool:
        name = node.op.name
        if name in ZEROS or (name in FILLS and self.is_zero(node.operand(1))):
            return True
        return any(
            all(i < node.num_operands and self.is_zero(node.operand(i)) for i in a) for a in linear_in(node) or ()
        )

    def _count(self, value: Value) -> dict[Path, int]:
        counts = dict.fromkeys(leaves(value.type), 0)
        if not counts:
            return counts
        for user, i in value.use_sites():
            name = user.op.name
            if user not in self.live or self.zeros.get(user) or name in NO_VALUE or (name == "Depend" and i == 1):
                continue
            if name == "TupleGetItem" and (k := element(user)) is not None:
                for path, n in self.counts[user].items():
                    if n and (whole := (k, *path)) in counts:
                        counts[whole] += 1
                continue
            for path in counts:
                counts[path] += self._matters(user, i, path)
        return counts

    def _matters(self, user: Node, i: int, path: Path) -> bool:
        """Whether anything is made of what ``user`` makes of an element of its operand."""
        if (user, i) in self.wanted:
            return True
        if user.op.name == "MakeTuple":
            return bool(self.counts[user].get((i, *path)))
        if user.op.name == "Depend":
            return bool(self.counts[user].get(path))
        if user.op is RETURN and user.graph is not None:
            return user.graph is self.graph or path in self.taken.get(user.graph, ())
        if (user, i) in self.formals and user not in self.closures.open:
            return any(self.counts.get(formal, {}).get(path) for formal in self.formals[user, i])
        return not _float(user) or is_effect(user) or bool(self.counts[user].get(()))


class _Demand:
    """One attempt: every use that must be multiplied, and every component that comes out multiplied by itself.

    ``refused`` holds the functions and nodes through which earlier attempts could not pass, and what they guessed
    wrongly.
    """

    def __init__(self, plan: _Plan, refused: AbstractSet[object]):
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
            for path in self.plan.taken.get(function, ())
            if (function, path) not in self.results and (function, path) not in self.refused
            if self.plan.derivative.rank(_returned(function, path)) >= TAIL
        ]
        for function, path in guesses:
            self.results[function, path] = self.guessed[function, path] = None
            self._want((function._return, 0, path), None)
        return bool(guesses)

    def _want(self, use: Use, cause: Component | None) -> None:
        user, i, path = use
        component = (user.operand(i), path)
        if use in self.uses or self.plan.is_zero(*component):
            return
        self.uses[use] = cause
        value = component[0]
        count = self.plan.counts.get(value, {}).get(path)
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
            raise _not_linear(value, "it takes derivatives from a workspace that no operand shows")
        if self.plan.derivative.rank(value) < TAIL and not (isinstance(value, Node) and value.op.name == "MakeTuple"):
            return
        if isinstance(value, Input):
            if self.plan.owner[value] not in self.refused:
                sites = self.plan.closures.bound.get(value, ())
                self._settle(component, [(node, i, path) for node, i in sites if node in self.plan.live])
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
                f"graph '{_home(call)}': the derivative passes through the call {call!r} (scope '{call.scope}'), and "
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
        counts = self.plan.counts[node]
        waiting = self.waiting.get(node)
        waiting = sum(1 for n in counts.values() if n) - 1 if waiting is None else waiting - 1
        self.waiting[node] = waiting
        if waiting:
            return
        positions = self._terms(node)
        if positions is None:
            return
        self.scaled.update((node, path) for path in counts)
        cause = (node, next(iter(counts)))
        for i in positions:
            for path in leaves(node.operand(i).type):
                self._want((node, i, path), cause)

    # -- one primitive ---------------------------------------------------------------------------------------

    def _terms(self, node: Node) -> tuple[int, ...] | None:
        """The operands to multiply; None where the derivative starts here."""
        derivative = self.plan.derivative
        brought = [i for i, operand in enumerate(node._operands) if derivative.brings(node, operand)]
        if node.op.name in self.plan.assumed:
            return tuple(brought[:1]) or None
        alternatives = linear_in(node)
        if alternatives is None:
            if brought:
                raise _not_linear(node, f"{node.op.name} is not known to be linear in it")
            return None
        chosen = self._choose(node, alternatives)
        if chosen is None:
            if len([i for i in brought if derivative.rank(node.operand(i)) == CARRIER]) > 1:
                raise _not_linear(node, "it multiplies the derivative by itself")
            return None
        outside = [i for i in brought if i not in chosen]
        if len(outside) == len(brought) > 0 or any(derivative.rank(node.operand(i)) == CARRIER for i in outside):
            raise _not_linear(node, f"it is not linear in operand {outside[0]}, which carries the derivative too")
        for i in chosen:
            operand = node.operand(i)
            if next(leaves(operand.type), None) is None and not _is_nothing(operand):
                if brought:
                    raise _not_linear(node, f"its operand {i}, {operand!r}, is no tensor of floats")
                return None
        return chosen

    def _choose(self, node: Node, alternatives: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        """The alternative nearest to the derivative; of equal ones a constant; None where that is not decided."""
        present = [tuple(i for i in a if i < node.num_operands) for a in alternatives]
        if len(present) == 1:
            return present[0]
        ranked = [(max((self.plan.derivative.rank(node.operand(i)) for i in a), default=-1), a) for a in present]
        top = max(rank for rank, _ in ranked)
        best = [a for rank, a in ranked if rank == top]
        if len(best) > 1 and top < TAIL:
            best = [
                a for a in best if all(isinstance(node.operand(i), Constant) and _float(node.operand(i)) for i in a)
            ]
        return best[0] if len(best) == 1 else None

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
        return all(
            (call, path) in self.scaled or call not in self.plan.live or not self.plan.counts[call].get(path, 0)
            for call in self.plan.closures.callers.get(function, ())
        )

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
                    f"graph '{main.name}': the gradient that {user!r} takes is computed inside function "
                    f"'{home.name if home else '?'}', where no loss scale is known. Take gradients outside of "
                    "branches and loops."
                )
            if news <= self.refused:
                raise AnatomyError(
                    f"graph '{main.name}': operand {i} of {user!r} (scope '{user.scope}') is a tuple that holds the "
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
                f"graph '{_home(call)}': which functions {call!r} reaches cannot be told, so neither can be what else "
                "calls those that the derivative passes through"
            )
        return found - self.refused

    def _check_seed(self, user: Node, i: int) -> None:
        value = user.operand(i)
        if not _float(value):
            raise AnatomyError(f"{value!r}, a use of {user!r}, carries the derivative but is no tensor of floats")
        if i in written_operands(user):
            raise AnatomyError(
                f"{user!r} (scope '{user.scope}') writes its operand {i} in place, which would have to be multiplied "
                "before it: not supported"
            )

    def seeds(self) -> list[Seed]:
        found: dict[Value, Seed] = {}
        for user, i, path in self.uses:
            value = user.operand(i)
            if (value, path) not in self.scaled:
                found.setdefault(value, Seed(value)).uses.append((user, i))
        return list(found.values())


def leaves(type_: Type) -> Iterator[Path]:
    """The places of the tensors of floats or complex numbers in a value of this type: ``()`` for a tensor itself."""
    if isinstance(type_, TupleType):
        for i, inner in enumerate(type_.elements):
            for path in leaves(inner):
                yield (i, *path)
    elif isinstance(type_, TensorType) and (type_.dtype.is_float or type_.dtype in COMPLEX):
        yield ()


def _returned(function: Graph, path: Path) -> Value:
    """The value that an element of a function's result is, as far as it is packed where it is returned."""
    value = function.result
    while path and isinstance(value, Node) and value.op.name == "MakeTuple":
        value, path = value.operand(path[0]), path[1:]
    return value


def _live(main: Graph) -> set[Node]:
    """The nodes that the result needs, effects and order included, in all functions it reaches."""
    live: set[Node] = {main._return}
    stack = [main._return]
    while stack:
        for operand in stack.pop()._operands:
            node = operand.graph._return if isinstance(operand, GraphRef) else operand
            if isinstance(node, Node) and node not in live:
                live.add(node)
                stack.append(node)
    return live


def _float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


def _constant(value: Value) -> bool:
    return isinstance(value, Constant)


def _is_nothing(value: Value) -> bool:
    """An operand that adds nothing to a sum: zero, or absent."""
    if is_monad(value.type) or not isinstance(value, Constant):
        return is_monad(value.type)
    number = value.value.value if isinstance(value.value, Number) else value.value
    return number is None or (isinstance(number, (int, float)) and number == 0)


def _is_zero_constant(value: Value) -> bool:
    if isinstance(value, Constant) and isinstance(value.value, TensorValue):
        return not any(value.value.data.view())
    return isinstance(value, Constant) and _is_nothing(value)


def _home(node: Node) -> str:
    return node.graph.name if node.graph is not None else "?"


def _not_linear(node: Node, why: str) -> AnatomyError:
    return AnatomyError(
        f"graph '{_home(node)}': the derivative of the loss passes through {node!r} (scope '{node.scope}'), but {why}: "
        "the gradients behind it would not be those of a scaled loss. If the primitive is linear in its first operand "
        f"that carries the derivative, say so with loss-scale{{assume_linear=[{node.op.name}]}}; else train without a "
        "loss scale."
    )
