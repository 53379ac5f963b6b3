"""Parameter groups: some weights get their own learning rate, weight decay, tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ..ir.analysis.effects.state_access import location
from ..ir.analysis.functions.closures import Closures
from ..ir.analysis.training.anatomy import anatomy
from ..ir.analysis.training.gradient_path import PASSING, updating_graphs
from ..ir.analysis.training.own_writes import own_writes
from ..ir.analysis.training.stages import GradientPath
from ..ir.builders.cast import cast
from ..ir.core.attributes import scalar_tensor
from ..ir.core.errors import OptionError, PassError, nearest
from ..ir.core.graph import Graph, Input, Node, State, Value, rewire, tensor_type
from ..ir.core.predicates import written_operands
from ..ir.core.primitives import facts
from ..ir.core.program import Program
from ..ir.core.report import PassResult
from ..ir.core.sites import site
from ..ir.core.types import DType, TensorType
from ..ir.core.walk import walk
from ..ir.core.wording import agreed, counted
from ..ir.rewrite.effects.editing import Effects
from ..ir.rewrite.stages import put, summed
from .framework.base import Pass
from .framework.options import option
from .step.names import FUSION, TAG
from .step.rates import DIVIDE_BY_RATE
from .step.sparse import refuse_sparse
from .step.unscaling import HELP, TOLD, check_unscale, remark, unscaled_paths

SCOPE = "parameter-groups"
_DECAY_ATTRIBUTE = {"SGD": "weight_decay"}


class ParameterGroups(Pass):
    """Gives some weights a learning rate, a weight decay and tags of their own.

    ``match`` are globs over names (``*.bias``), and ``rank`` restricts to matrices and filters, or to vectors. Each use
    of the pass forms one group; later ones come on top. ``lr_factor`` multiplies the learning rate as the optimizer
    takes it, whatever its schedule. It multiplies the step of the weight instead if the optimizer is not one primitive,
    or if the factor is zero and the optimizer divides by the rate (FTRL). ``weight_decay`` replaces the decay: the term
    that is added to the gradient, or the optimizer's own coefficient. What the cell does to a weight by itself behind
    the update (it bounds it) stays as it is. ``centralize`` tags for ``lower-gradient-centralization`` or takes the
    tag away. ``fusion`` numbers the group whose gradients are communicated together. ``split_points`` numbers groups by
    position, 1 before the first of them.

    Changes training.

    Source: the parameter groups of MindSpore's optimizers; ``ParameterProcess`` and ``OptimizerProcess`` of
    ``mindspore.boost``, which need them when the optimizer is built.
    """

    name = "parameter-groups"
    at_stage = "weight-decay"
    preserves = False
    match: tuple[str, ...] = option(("*",), help="globs over the names of weights")
    rank: str = option("any", help="which of them", choices=("any", "matrix", "vector"))
    lr_factor: float | None = option(None, help="multiplies the learning rate", minimum=0)
    weight_decay: float | None = option(None, help="replaces the weight decay", minimum=0)
    centralize: bool | None = option(None, help="tag for gradient centralization, or not")
    fusion: int | None = option(None, help="number of the communication group", minimum=0)
    split_points: tuple[int, ...] = option(
        (), help="positions among the matching weights at which a new communication group begins", minimum=0
    )
    unscale: str = option(TOLD, help=HELP)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unscale(self.unscale, self.name)
        if self.fusion is not None and self.split_points:
            raise OptionError(f"pass '{self.name}': fusion and split_points both number groups: give one of them")
        if not self._given():
            raise OptionError(
                f"pass '{self.name}' is told which weights, not what they get: give lr_factor, weight_decay, "
                "centralize, fusion or split_points"
            )

    def _given(self) -> dict[str, Any]:
        """The settings of the group."""
        return {
            k: v for k, v in self.options().items() if v not in (None, ()) and k not in ("match", "rank", "unscale")
        }

    def run(self, program: Program) -> PassResult:
        result = self.result()
        weights = [name for name, v in program.state.items() if v.role == "weight" and v.trainable is not False]
        if not weights:
            for graph in updating_graphs(program):
                anatomy(graph)  # says why no weight is known
        group = [name for name in weights if self._matches(name, len(program.state[name].shape))]
        for glob in self.match:
            if not any(fnmatchcase(name, glob) for name in weights):
                result.miss(glob, f"no trained weight has such a name{nearest(glob, weights)}")
        result.matched = len(group)
        if not group:
            return result
        changed: dict[str, None] = {}
        if self.lr_factor is not None or self.weight_decay is not None:
            for graph in updating_graphs(program):
                decayed = None if self.weight_decay is None else unscaled_paths(graph, self.unscale)
                paths = {path.weight: path for path in decayed or () if path.weight in group}
                remark(result, paths.values())
                changed.update(dict.fromkeys(_Group(graph, set(group), self.lr_factor, self.weight_decay, paths).run()))
            for name in group:
                if name not in changed:
                    result.miss(name, "nothing updates it from a gradient")
        for at, name in enumerate(group):
            rank = len(program.state[name].shape)
            self._tag(program.state[name].info, rank)
            if self.centralize and rank <= 1:
                result.miss(name, "it has one axis at most: nothing is left to take a mean over")
            if self.split_points:
                program.state[name].info[FUSION] = 1 + sum(point <= at for point in self.split_points)
        for point in self.split_points:
            if point >= len(group):
                result.miss(
                    f"split point {point}",
                    f"only {counted(len(group), 'weight')} {agreed(len(group), 'matches', 'match')}",
                )
        tags = self.centralize is not None or self.fusion is not None or bool(self.split_points)
        result.changed = len(group) if tags else len(changed)
        given = ", ".join(f"{key} {value}" for key, value in self._given().items())
        result.summary = f"{counted(len(group), 'weight')} {agreed(len(group), 'gets', 'get')} {given}"
        return result

    def _matches(self, name: str, rank: int) -> bool:
        fits = {"any": True, "matrix": rank > 1, "vector": rank <= 1}[self.rank]
        return fits and any(fnmatchcase(name, glob) for glob in self.match)

    def _tag(self, info: dict[str, Any], rank: int) -> None:
        if self.centralize and rank > 1:
            info[TAG] = list(range(1, rank))
        elif self.centralize is False:
            info.pop(TAG, None)
        if self.fusion is not None:
            info[FUSION] = self.fusion


class _Group:
    """Rewrites one graph and its functions. Returns the weights that it found updates of."""

    def __init__(
        self,
        graph: Graph,
        names: set[str],
        lr_factor: float | None,
        weight_decay: float | None,
        paths: Mapping[str, GradientPath],
    ):
        self.graph = graph
        self.names = names
        self.lr_factor = lr_factor
        self.weight_decay = weight_decay
        self.paths = paths
        self.closures = Closures(graph)
        self.effects = {body: Effects(body) for body in graph.all_graphs()}
        self.rates: dict[tuple[Graph, Value], Value] = {}

    def run(self) -> list[str]:
        places = {name: self._places(name) for name in self.graph.states if name in self.names}
        updates = {name: list(self._updates(found)) for name, found in places.items()}
        if any(len(found) > 1 for found in updates.values()):  # what the cell does to a weight by itself is no update
            own = own_writes(self.graph)
            updates = {name: [node for node in found if node not in own] for name, found in updates.items()}
        for name, found in updates.items():
            if self.weight_decay is not None and found:
                self._decay(name, found, places[name], self.paths.get(name))
            if self.lr_factor is not None:
                self._rate(name, found)
        for fx in self.effects.values():
            fx.commit()
        return [name for name, found in updates.items() if found]

    def _places(self, name: str) -> list[Value]:
        """A weight, and the inputs of functions that stand for it."""
        start: list[Value] = [self.graph.states[name]]
        places = dict.fromkeys(
            walk(start, lambda place: [f for use in place.use_sites() for f in self.closures.formals.get(use, ())])
        )
        for formal in places:
            for call, at in self.closures.bound.get(formal, ()) if isinstance(formal, Input) else ():
                if call.operand(at) not in places:
                    raise PassError(
                        f"graph '{self.graph.name}' updates weight '{name}' and others by one function "
                        f"(by {site(call)}), in which no weight has a learning rate or a decay of its own"
                    )
        return list(places)

    @staticmethod
    def _updates(places: list[Value]) -> Iterator[Node]:
        """The nodes that write a weight, in the main graph or in functions."""
        for place in places:
            yield from (user for user, i in place.use_sites() if i in written_operands(user))

    # -- learning rate ---------------------------------------------------------------------------------------

    def _rate(self, name: str, updates: list[Node]) -> None:
        known = [
            node
            for node in updates
            if facts(node.op).rate is not None
            and written_operands(node)
            and (self.lr_factor or node.op.name not in DIVIDE_BY_RATE)
        ]
        if len(known) == len(updates):
            for node in known:
                at = facts(node.op).rate
                assert at is not None
                node.set_operand(at, self._scaled(node.home, node.operand(at)))
        else:
            self._scale_step(name, updates)

    def _scaled(self, body: Graph, rate: Value) -> Value:
        made = self.rates.get((body, rate))
        if made is None:
            value = self._loaded(self.effects[body], rate) if isinstance(rate, (State, Input)) else rate
            factor = self._factor(body, value)
            made = self.rates[body, rate] = body.create("Mul", [value, factor], scope=SCOPE, sources=[rate])
        return made

    @staticmethod
    def _loaded(fx: Effects, rate: Value) -> Value:
        """What a rate is when weights are updated: behind the write of one that a schedule sets."""
        writes = [k for k, e in enumerate(fx.list) if rate in e.writes]
        value = fx.load(rate, scope=SCOPE, initial=not writes)
        if writes:
            fx.list.insert(writes[-1] + 1, fx.list.pop())
        return value

    def _factor(self, body: Graph, like: Value) -> Value:
        factor = body.constant(scalar_tensor("float32", self.lr_factor or 0.0))
        return cast(body, factor, tensor_type(like).dtype, scope=SCOPE)

    def _scale_step(self, name: str, updates: list[Node]) -> None:
        """w = old + factor * (new - old), right after the update: for optimizers made of many primitives."""
        bodies = {node.graph for node in updates}
        place = {location(node.operand(i)) for node in updates for i in written_operands(node)[:1]}
        (body,) = bodies if len(bodies) == 1 else (None,)
        (where,) = place if len(place) == 1 else (None,)
        if body is None or where is None:
            raise PassError(
                f"graph '{self.graph.name}' updates weight '{name}' in several functions: lr_factor has no place there"
            )
        fx = self.effects[body]
        behind = max(i for i, effect in enumerate(fx.list) if effect.node in updates) + 1
        rest = fx.list[behind:]
        del fx.list[behind:]  # the cell may bound or copy the new weight
        # A copy: the memory of the weight is what the update writes.
        old = body.create("TensorMove", [fx.load(where, scope=SCOPE)], scope=SCOPE)
        new = fx.load(where, scope=SCOPE, initial=False)
        step = body.create("Mul", [body.create("Sub", [new, old], scope=SCOPE), self._factor(body, new)], scope=SCOPE)
        fx.append("Assign", [where, body.create("Add", [old, step], scope=SCOPE)], scope=SCOPE)
        fx.list += rest

    # -- weight decay ----------------------------------------------------------------------------------------

    def _decay(self, name: str, updates: list[Node], places: list[Value], path: GradientPath | None) -> None:
        assert self.weight_decay is not None
        if all(facts(node.op).decay is not None for node in updates):
            for node in updates:
                at = facts(node.op).decay
                assert at is not None
                is_tensor = isinstance(node.operand(at).type, TensorType)
                coefficient = scalar_tensor("float32", self.weight_decay) if is_tensor else self.weight_decay
                node.set_operand(at, node.home.constant(coefficient))
        elif path is not None and path.sparse:
            refuse_sparse([path], "to which a decay of the whole weight cannot be added")
        elif path is not None and path.has("weight-decay"):
            self._replace_decay(path, name, places)
            for node in updates:  # which would decay once more
                if node.op.name in _DECAY_ATTRIBUTE:
                    node.set_attribute(_DECAY_ATTRIBUTE[node.op.name], 0.0)
        elif all(node.op.name in _DECAY_ATTRIBUTE for node in updates):
            for node in updates:
                node.set_attribute(_DECAY_ATTRIBUTE[node.op.name], float(self.weight_decay))
        elif path is not None and all(facts(node.op).gradient is not None for node in updates):
            self._check_given(name, updates, path)
            if self.weight_decay:
                put(path, "weight-decay", lambda body, value: self._decayed(body, value, name, places))
        else:
            raise PassError(
                f"graph '{self.graph.name}': the optimizer of weight '{name}' is made of many primitives and decays "
                "inside the update, if at all: set its weight decay when you build it, or export a fused optimizer"
            )

    def _check_given(self, name: str, updates: list[Node], path: GradientPath) -> None:
        """Refuses what stands between a gradient and the primitives that update by it: nobody knows what an operation
        there would make of a decay in front of it."""

        def source(value: Value) -> Sequence[Value]:
            if isinstance(value, Input):
                return [call.operand(at) for call, at in self.closures.bound.get(value, ())]
            return value.operands[:1] if isinstance(value, Node) and value.op.name in PASSING else ()

        for update in updates:
            at = facts(update.op).gradient
            assert at is not None
            taken = list(walk([update.operand(at)], source))
            if not set(taken) & set(path.points[-1].values):
                between = next((v for v in reversed(taken) if isinstance(v, Node)), update)
                raise PassError(
                    f"graph '{self.graph.name}': {site(between)} stands between the gradient of weight '{name}' "
                    "and its "
                    "optimizer, so a weight decay has no place there: set it when you build the optimizer"
                )

    def _replace_decay(self, path: GradientPath, name: str, places: list[Value]) -> None:
        at = next(i for i, p in enumerate(path.points) if p.stage == "weight-decay")
        before, decayed = path.points[at - 1], path.points[at]
        body = decayed.graph
        assert body is not None
        total = summed(before, scope=SCOPE)
        new = self._decayed(body, total, name, places) if self.weight_decay else total
        rewire(decayed.takers, new)

    def _decayed(self, body: Graph, gradient: Value, name: str, places: list[Value]) -> Value:
        """gradient + decay * weight, in the gradient's type."""
        here = body.inputs if body is not self.graph else ()
        where = next((p for p in places if (isinstance(p, State) if body is self.graph else p in here)), None)
        if where is None:
            raise PassError(
                f"function '{body.name}' decays the gradient of weight '{name}' without being given the weight: set "
                "its weight decay when you build the optimizer"
            )
        dtype = tensor_type(gradient).dtype
        weight = cast(body, self.effects[body].load(where, scope=SCOPE), dtype, scope=SCOPE)
        factor = body.constant(scalar_tensor(DType.FLOAT32, self.weight_decay or 0.0))
        term = body.create("Mul", [weight, cast(body, factor, dtype, scope=SCOPE)], scope=SCOPE)
        return body.create("Add", [term, gradient], scope=SCOPE, sources=[gradient])
