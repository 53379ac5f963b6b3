"""The BatchNorms of a training graph, each with its gradient: what stands for one layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...ir.analysis.effects.state_access import location, place
from ...ir.analysis.functions.closures import element
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.network import FORWARD
from ...ir.builders.branch import plain
from ...ir.core.graph import Node, State, Value
from ...ir.core.predicates import is_effect, written_operands
from ...ir.core.primitives import Family, named
from ...ir.core.sites import site
from ...ir.core.walk import walk
from ...ir.core.wording import counted

FORMS = named(Family.BATCH_NORM, in_place=True)
GRADS = named(Family.BATCH_NORM_GRADIENT)
PARAMETERS = ("gamma", "beta", "moving mean", "moving variance")


@dataclass(eq=False)
class BatchNorm:
    """One layer. ``x`` and ``outputs`` are what it takes and gives, ``grads`` its gradient nodes (one, none where
    nothing in front of it is trained), ``parameters`` its state by role."""

    node: Node
    site: str
    x: Value
    outputs: list[Node] = field(default_factory=list)
    grads: list[Node] = field(default_factory=list)
    parameters: dict[str, State] = field(default_factory=dict)
    obstacle: str = ""
    """Why this one cannot be removed, as far as its own nodes tell."""

    @property
    def own(self) -> tuple[Node, ...]:
        return (self.node, *self.grads)

    def gradients(self) -> Iterator[Node]:
        """Of gamma and beta."""
        for grad in self.grads:
            yield from (item for index, items in elements(grad).items() if index in (1, 2) for item in items)

    def dx(self) -> Iterator[tuple[Node, Value]]:
        """The gradient of x, and that of the output, which takes its place."""
        for grad in self.grads:
            for item in elements(grad).get(0, ()):
                yield item, grad.operand(0)


def batch_norms(found: TrainingAnatomy) -> list[BatchNorm]:
    """Every BatchNorm of forward, in order; those inside functions too, as ones that cannot be removed."""
    norms = [
        _batch_norm(found, node)
        for graph in found.graph.all_graphs()
        for node in graph
        if node.op.name in FORMS and found.part(node) == FORWARD
    ]
    owners: dict[State, BatchNorm] = {}
    for norm in norms:
        for role, state in norm.parameters.items():
            other = owners.setdefault(state, norm)
            if other is not norm:
                for one in (norm, other):
                    one.obstacle = one.obstacle or f"its {role} '{state.name}' serves another BatchNorm too"
    return norms


def _batch_norm(found: TrainingAnatomy, node: Node) -> BatchNorm:
    norm = BatchNorm(node, node.name, node.operand(0))
    for role, operand in zip(PARAMETERS, node.operands[1:5], strict=False):
        state = _state(operand)
        if state is not None:
            norm.parameters[role] = state
    if "gamma" in norm.parameters:
        norm.site = norm.parameters["gamma"].name
    if node.graph is not found.graph:
        norm.obstacle = f"it stands inside function '{node.home.name}'"
        return norm
    saved: list[Node] = []
    for index, items in elements(node).items():
        if index == 0:
            norm.outputs.extend(items)
        else:
            saved.extend(items)
    norm.grads.extend(dict.fromkeys(_grads(norm, saved)))
    norm.obstacle = _obstacle(norm, saved)
    return norm


def _grads(norm: BatchNorm, saved: list[Node]) -> Iterator[Node]:
    for item in saved:
        yield from (user for user in item.uses if user.op.name in GRADS)
    # With frozen statistics the gradient takes nothing that forward saved.
    gamma = norm.node.operand(1)
    for user in norm.x.uses:
        if user.op.name in GRADS and user.operand(1) is norm.x and _same(user.operand(2), gamma):
            yield user


def _obstacle(norm: BatchNorm, saved: list[Node]) -> str:
    if len(norm.grads) > 1:
        return f"it has {counted(len(norm.grads), 'gradient node')}"
    own = set(norm.own)
    for item in saved:
        for user in item.uses:
            if user not in own and user.op.name != "UpdateState":
                return f"{site(user)} takes a statistic of the batch from it"
    for node in own:
        for user in node.uses:
            if user.op.name not in ("TupleGetItem", "UpdateState", "Depend", "MakeTuple"):
                return f"{site(user)} takes all results of %{node.name} at once"
    for output in norm.outputs:
        if plain(output.type) != plain(norm.x.type):
            return f"it makes {output.type} of {norm.x.type}"
        if _overwritten(output) and any(user not in own for user in norm.x.uses if user.op.name != "UpdateState"):
            return "its result is overwritten in place, and what it takes is needed elsewhere"
    for item, dy in norm.dx():
        if plain(item.type) != plain(dy.type):
            return f"its gradient makes {item.type} of {dy.type}"
    return ""


def elements(node: Node) -> dict[int, list[Node]]:
    """The elements taken from a tuple by index, also through Depends."""

    def passed_on(here: Node) -> list[Node]:
        return [user for user, i in here.use_sites() if i == 0 and user.op.name == "Depend"]

    found: dict[int, list[Node]] = {}
    for here in walk([node], passed_on):
        for user, i in here.use_sites():
            if i == 0 and user.op.name == "TupleGetItem" and (index := element(user)) is not None:
                found.setdefault(index, []).append(user)
    return found


def _overwritten(value: Node) -> bool:
    return any(
        is_effect(user) and any(place(user.operand(i)) is value for i in written_operands(user)) for user in value.uses
    )


def _state(value: Value) -> State | None:
    while isinstance(value, Node) and value.op.name in ("Load", "Cast"):
        value = value.operand(0)
    where = location(value)
    return where if isinstance(where, State) else None


def _same(a: Value, b: Value) -> bool:
    return a is b or (_state(a) is not None and _state(a) is _state(b))
