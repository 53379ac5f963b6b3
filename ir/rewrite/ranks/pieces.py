"""Updates on a piece of a weight: which can be made so, and how a graph is rewritten for the piece that a rank has.

An update works element by element if all that is computed of the weight's slots, and all that writes it, does so (the
table of primitives says which do). Then it is made on the elements of one piece alone: slots are as long as the piece,
whole values that it takes (gradients) are cut, and what is written in place of the weight is a copy of the piece, made
of the weight in front of the update. What else takes the sum of a cycle (norms, finite checks) gets it whole, gathered
from all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...analysis.effects.tokens import orders_only
from ...analysis.functions.closures import Closures
from ...analysis.targets import targets_of
from ...builders.cast import cast
from ...core.graph import Graph, Input, Node, State, Use, Value, tensor_type
from ...core.names import STAGE
from ...core.op import CALL, RETURN
from ...core.predicates import is_effect, written_operands
from ...core.primitives import CPU, Family, facts
from ...core.sites import site
from ...core.types import TensorType, TupleType, Type
from ...core.walk import walk
from ..effects.editing import Effects
from .buckets import ALL_REDUCE
from .collectives import WORLD, reduce_scatter
from .dealing import Deal
from .messages import SCOPE, cut_out, gathered, in_a_row, in_rounds, reshaped, widened


class _Obstacle(Exception):
    """Something of an update needs more than the elements at its own place."""


@dataclass(eq=False)
class Region:
    """The update of ``weight`` in a graph. ``obstacle`` says why it cannot be made on a piece ("" if it can)."""

    weight: str
    shape: tuple[int, ...]
    obstacle: str = ""
    pieces: dict[Value, None] = field(default_factory=dict)
    """What is as long as the piece."""
    nodes: dict[Node, None] = field(default_factory=dict)
    """What works on the elements."""
    taken: dict[Use, None] = field(default_factory=dict)
    """Where these take values of the shape of the weight, whole or pieces; of tuples, the elements of all."""
    written: dict[Use, None] = field(default_factory=dict)
    """Where they write the weight."""
    whole: dict[Use, None] = field(default_factory=dict)
    """What takes a sum of a cycle, and needs all of it."""


class Pieces:
    """The updates of one graph and its functions, as far as they can be made on pieces of the weights."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.closures = Closures(graph)
        self._pending: list[Value] = []

    def region(self, weight: str, slots: Iterable[str], sums: Iterable[str]) -> Region:
        """The update of ``weight``, and of what is dealt out with it: slots, and sums of a cycle."""
        found = Region(weight, tensor_type(self.graph.states[weight]).shape if weight in self.graph.states else ())
        states = self.graph.states
        try:
            self._grow(found, [states[name] for name in slots if name in states])
            self._grow_from_sums(found, [states[name] for name in sums if name in states])
        except _Obstacle as obstacle:
            found.obstacle = str(obstacle)
        return found

    def _grow(self, region: Region, slots: Iterable[State]) -> None:
        self._begin_at(region, slots)
        for alias in self._aliases(region.weight):
            for user, i in alias.use_sites():
                if user.op is not CALL and i in written_operands(user):
                    if isinstance(alias, Input) and len(self.closures.bound.get(alias, ())) != 1:
                        raise _Obstacle(f"a function that updates it, with {site(user)}, updates other weights too")
                    region.written[user, i] = None
                    self._take(region, user)
        while self._pending:
            value = self._pending.pop()
            for user, i in value.use_sites():
                for node in self._use(region, value, user, i):
                    self._take(region, node)
        self._grow_upwards(region)

    def _grow_from_sums(self, region: Region, sums: Iterable[State]) -> None:
        self._begin_at(region, sums)
        others: list[tuple[Value, Use]] = []
        while self._pending:
            value = self._pending.pop()
            for user, i in value.use_sites():
                for node in self._use(region, value, user, i):
                    if is_effect(node):
                        self._take(region, node)
                    else:
                        others.append((value, (user, i)))
        self._grow_upwards(region)
        for value, (user, i) in others:
            if not all(node in region.nodes for node in self._use(region, value, user, i)):
                if not isinstance(value, Node) or value.graph is not self.graph:
                    raise _Obstacle(f"a function needs {site(value)} whole")
                region.whole[user, i] = None

    def _begin_at(self, region: Region, states: Iterable[State]) -> None:
        self._pending = []
        for state in states:
            if not region.shape:
                region.shape = tensor_type(state).shape
            if tensor_type(state).shape != region.shape:
                raise _Obstacle(f"'{state.name}' has another shape than the weight")
            self._add(region, state)

    def _aliases(self, weight: str) -> list[Value]:
        """The weight's state, and the inputs of functions that stand for it."""
        if weight not in self.graph.states:
            return []

        def inputs(value: Value) -> list[Value]:
            return [formal for use in value.use_sites() for formal in self.closures.formals.get(use, ())]

        start: list[Value] = [self.graph.states[weight]]
        return list(walk(start, inputs))

    def _add(self, region: Region, value: Value) -> None:
        if value not in region.pieces:
            region.pieces[value] = None
            self._pending.append(value)

    def _use(self, region: Region, value: Value, user: Node, i: int) -> Iterable[Node]:
        """Follows a use of a piece to what is the same piece; returns who computes from it."""
        if orders_only(user, i):
            return []
        name = user.op.name
        if user.op is RETURN:
            raise _Obstacle(f"{site(value)} is a result")
        if name == "Load" or name == "Depend":
            self._add(region, user)
        elif name == "MakeTuple":
            return [taker for taker, at in user.use_sites() if not orders_only(taker, at)]
        elif name == "Partial" or user.op is CALL:
            formals = self.closures.formals.get((user, i), ())
            if not formals or any(len(self.closures.bound[formal]) != 1 for formal in formals):
                raise _Obstacle(f"a function that takes {site(value)} serves other weights too")
            for formal in formals:
                self._add(region, formal)
        else:
            return [user]
        return []

    def _take(self, region: Region, node: Node) -> None:
        """``node`` works on the elements of the region, or is an obstacle."""
        if node in region.nodes:
            return
        reason = _not_elementwise(node, region)
        if reason:
            raise _Obstacle(reason)
        region.nodes[node] = None
        region.taken.update(dict.fromkeys((node, i) for i in _of_shape(node, region)))
        if isinstance(node.type, TensorType):
            self._add(region, node)
        elif any(not orders_only(user, i) for user, i in node.use_sites()):
            raise _Obstacle(f"results of {site(node)} are used")

    def _grow_upwards(self, region: Region) -> None:
        """What computes element by element what only the region takes works on pieces as well."""
        pending = [v for node, i in region.taken for v in _elements(node.operand(i))]
        while pending:
            node = pending.pop()
            if not isinstance(node, Node) or node in region.nodes or node in region.pieces or is_effect(node):
                continue
            if not isinstance(node.type, TensorType) or _not_elementwise(node, region):
                continue
            if all(user in region.nodes for user in _takers(node)):
                region.nodes[node] = region.pieces[node] = None
                uses = [(node, i) for i in _of_shape(node, region)]
                region.taken.update(dict.fromkeys(uses))
                pending += [v for _, i in uses for v in _elements(node.operand(i))]

    # -- rewriting -------------------------------------------------------------------------------------------

    def cut(self, regions: Iterable[Region], deal: Deal, rank: int, target: str) -> dict[str, State]:
        """Makes these updates on the pieces that ``rank`` has, in place. Returns, by weight, the copies of pieces that
        the graph updates instead of weights."""
        copies: dict[str, State] = {}
        made: dict[Input, Input] = {}
        for region in regions:
            piece = deal.piece(region.weight, rank)
            if region.written:
                type_ = TensorType(tensor_type(self.graph.states[region.weight]).dtype, (piece.stop - piece.start,))
                copies[region.weight] = self.graph.state(_copy_of(region.weight), type_)
            whole = {use: tensor_type(use[0].operand(use[1])) for use in region.whole}
            _shorten(region, piece)
            parts: dict[Value, Value] = {}
            for node, i in region.taken:
                value = node.operand(i)
                short = {v: self._part(node.home, v, region, parts, deal, rank, target) for v in _elements(value)}
                if isinstance(value.type, TupleType):
                    with node.home.inserting_before(node):
                        node.set_operand(i, node.home.create("MakeTuple", [short[v] for v in _elements(value)]))
                else:
                    node.set_operand(i, short[value])
            self._give_whole(region, whole, deal, rank, target)
            for node, i in region.written:
                node.set_operand(i, self._copy_behind(node.operand(i), copies[region.weight], made))
        self._pass_on(made, copies)
        self._begin(copies, deal, rank)
        return copies

    def _part(
        self, graph: Graph, value: Value, region: Region, parts: dict[Value, Value], deal: Deal, rank: int, target: str
    ) -> Value:
        """The piece of a value that the region takes, made once."""
        if value in region.pieces:
            return value
        if value not in parts:
            with graph.inserting_after(value):
                if self._sums_for(value, region) and target in targets_of("ReduceScatter"):
                    assert isinstance(value, Node)
                    parts[value] = _scattered(graph, value.operand(0), region.weight, deal, rank, target)
                else:
                    parts[value] = cut_out(graph, value, deal.piece(region.weight, rank))
        return parts[value]

    def _give_whole(self, region: Region, whole: Mapping[Use, TensorType], deal: Deal, rank: int, target: str) -> None:
        """Gathers what others need whole of the pieces, once."""
        weight, group = region.weight, WORLD[target]
        found: dict[Value, Value] = {}
        for (node, i), type_ in whole.items():
            value = node.operand(i)
            if value not in found:
                with self.graph.inserting_after(value):
                    if target == CPU:
                        rows = [[(weight, deal.piece(weight, r))] for r in range(deal.ranks)]
                        *_, (_, last) = in_rounds(self.graph, rows, {weight: widened(self.graph, value)}, rank, group)
                        row = last[weight]
                    else:
                        _, row = gathered(self.graph, value, type_.size, deal.cut[weight], deal.ranks, group)
                    shaped = reshaped(self.graph, row, type_.shape)
                    found[value] = cast(self.graph, shaped, type_.dtype, scope=SCOPE)
            node.set_operand(i, found[value])

    def _sums_for(self, value: Value, region: Region) -> bool:
        """Whether a value is a sum over the ranks that nothing but the region needs."""
        if not isinstance(value, Node):
            return False
        summed = value.op.name == "AllReduce" and value.marks.get(STAGE) == ALL_REDUCE
        return summed and value.graph is self.graph and all(user in region.nodes for user in _takers(value))

    def _copy_behind(self, alias: Value, copy: State, made: dict[Input, Input]) -> Value:
        """The copy that stands in the place of the weight or, in a function, a new input for it."""
        inputs = []
        while isinstance(alias, Input):
            inputs.append(alias)
            ((node, i),) = self.closures.bound[alias]
            alias = node.operand(i)
        for formal in inputs:
            made.setdefault(formal, Input(copy.name, copy.type))
        return made[inputs[0]] if inputs else copy

    def _pass_on(self, made: Mapping[Input, Input], copies: Mapping[str, State]) -> None:
        """Gives functions their new inputs, and their callers the operands, behind those of the weights."""
        operands: dict[Node, list[tuple[int, Value]]] = {}
        for formal in made:
            ((node, i),) = self.closures.bound[formal]
            given = node.operand(i)
            operands.setdefault(node, []).append((i, made[given] if isinstance(given, Input) else copies[given.name]))
        for node, added in operands.items():
            behind = dict(added)
            node.set_operands([v for i, old in enumerate(node.operands) for v in (old, behind.get(i)) if v is not None])
        for function in self.graph.functions.values():
            function.inputs = [v for old in function.inputs for v in (old, made.get(old)) if v is not None]

    def _begin(self, copies: Mapping[str, State], deal: Deal, rank: int) -> None:
        """Each copy is made of its weight before anything is updated."""
        fx = Effects(self.graph)
        for weight, copy in copies.items():
            whole = fx.load(self.graph.states[weight], scope=SCOPE)
            fx.append("Assign", [copy, cut_out(self.graph, whole, deal.piece(weight, rank))], scope=SCOPE)
            fx.list.insert(0, fx.list.pop())
        self.graph.sort()
        fx.commit()


def _copy_of(weight: str) -> str:
    """The name of the state that holds the piece of a weight while it is updated."""
    return f"piece.{weight}"


def _not_elementwise(node: Node, region: Region) -> str:
    """Why a node cannot work on the elements of a piece; "" if it can."""
    known = facts(node.op)
    if not known.elementwise and known.family not in (Family.CAST, Family.COPY):
        return f"{site(node)} does not work element by element"
    for i in range(node.num_operands):
        if (node, i) in region.written:
            continue
        for value in _elements(node.operand(i)):
            type_ = value.type
            if isinstance(value, State) and value not in region.pieces and tensor_type(value).size != 1:
                return f"{site(node)} takes '{value.name}' whole"
            if isinstance(type_, TupleType) or (isinstance(type_, TensorType) and not _fits(type_, region.shape)):
                return f"{site(node)} takes {site(value)}, which has another shape than the weight"
    types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    if not any(_has_shape(type_, region) for type_ in types):
        return f"{site(node)} gives another shape than the weight's"
    return ""


def _fits(type_: TensorType, shape: tuple[int, ...]) -> bool:
    return type_.shape == shape or (type_.is_static and type_.size == 1 and len(type_.shape) <= 1)


def _elements(value: Value) -> Sequence[Value]:
    """A value, or those of a tuple that is made here."""
    return value.operands if isinstance(value, Node) and value.op.name == "MakeTuple" else (value,)


def _of_shape(node: Node, region: Region) -> Iterable[int]:
    """The operands that have the shape of the weight, or are tuples of such, but for the weight that is written."""
    for i, operand in enumerate(node.operands):
        if (node, i) not in region.written and any(_has_shape(value.type, region) for value in _elements(operand)):
            yield i


def _has_shape(type_: Type, region: Region) -> bool:
    return isinstance(type_, TensorType) and type_.shape == region.shape


def _takers(value: Value) -> Iterable[Node]:
    """Who computes from a value, by itself or in a tuple that is made here."""
    for user, i in value.use_sites():
        if orders_only(user, i):
            continue
        if user.op.name == "MakeTuple":
            yield from (taker for taker, at in user.use_sites() if not orders_only(taker, at))
        else:
            yield user


def _shorten(region: Region, piece: slice) -> None:
    """What is as long as the weight becomes as long as the piece."""

    def short(type_: Type) -> Type:
        if isinstance(type_, TensorType) and _has_shape(type_, region):
            ref = _copy_of(region.weight) if type_.ref == region.weight else type_.ref
            return TensorType(type_.dtype, (piece.stop - piece.start,), ref)
        return type_

    for value in dict.fromkeys([*region.pieces, *region.nodes]):
        type_ = value.type
        if isinstance(type_, TupleType):
            value.type = TupleType(tuple(map(short, type_.elements)), type_.is_list, type_.dynamic)
        else:
            value.type = short(type_)


def _scattered(graph: Graph, value: Value, weight: str, deal: Deal, rank: int, target: str) -> Value:
    """The piece of the sum over the ranks, for which half as much travels."""
    length = deal.cut[weight]
    padded = in_a_row(graph, value, length * deal.ranks)
    received = reduce_scatter(graph, padded, WORLD[target], deal.ranks, scope=SCOPE)
    piece = deal.piece(weight, rank)
    own = slice(0, piece.stop - piece.start)
    return received if own.stop == length else cut_out(graph, received, own)
