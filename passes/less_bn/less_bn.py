"""Fewer BatchNorms: those inside residual blocks go, from forward, backward and optimizer at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from ...ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from ...ir.core.errors import OptionError, PassError
from ...ir.core.graph import Graph, Node, Value, tensor_type
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.rewrite.removal import Plan, Removal
from ..framework.base import Pass
from ..framework.options import option
from ..step.step import the_step
from .norms import BatchNorm, batch_norms
from .residual import Join, residual_joins
from .upstream import removed_upstream

SELECTIONS = ("inner", "pattern", "pattern-or-inner", "scope")


class LessBN(Pass):
    """Removes the inner BatchNorms of residual blocks: less work a step, at little cost in accuracy.

    The pass finds a residual block by dataflow: an addition of feature maps of one shape that come from one value, by
    branches with convolutions. In each branch the last BatchNorm stays, and those before it go: two of three in a
    bottleneck block, one of two in a basic block. BatchNorms outside of blocks stay. With a BatchNorm go its gradient,
    its parameters, their optimizer state, and its statistics.

    ``select=pattern`` removes the BatchNorms that ``mindspore.boost.LessBN`` removes, ``select=pattern-or-inner``
    those, or the inner ones where that finds nothing. ``select=scope`` removes those whose scope matches ``scope``.

    Changes training: it is another network. Choose initial values that suit a network without normalisation (Zhang et
    al., Fixup Initialization, 2019).

    Source: ``mindspore.boost.LessBN``.
    """

    name = "less-bn"
    preserves = False
    early = True
    select: str = option("inner", help="which BatchNorms go", choices=SELECTIONS)
    scope: str | None = option(None, help="glob of scopes, such as */layer1*/bn2* (select=scope)")
    max_removed: int | None = option(None, help="no more than so many, nearest to the input first", minimum=1)
    dry_run: bool = option(False, help="only report the BatchNorms that would go")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.select == "scope") != (self.scope is not None):
            raise OptionError(f"pass '{self.name}': select=scope and scope=GLOB belong together")

    def run(self, program: Program) -> PassResult:
        result = self.result()
        step = the_step(program, self.name)
        found = anatomy(step)
        norms = batch_norms(found)
        if not norms:
            result.miss(step.name, "the forward part has no BatchNorm")
        removal = Removal(found.graph, found.parts, found.weights)
        chosen = self._choose(found, norms, removal, result)
        plan = _together(removal, chosen)
        if plan.obstacle:
            raise PassError(
                f"{self.name} cannot remove these BatchNorms together: {plan.obstacle}. Remove fewer (max_removed)"
            )
        result.matched = len(chosen)
        nodes = step.total_nodes()
        gone = [program.state[name] for name in plan.states]
        if not self.dry_run and chosen:
            removal.apply(plan, lambda: _rewire(step, chosen))
            program.drop_state(plan.states)
            result.changed = len(chosen)
        result.statistics = {
            "BatchNorms": len(norms),
            "BatchNorms removed": len(chosen),
            "removed": [norm.site for norm in chosen],
            "parameters removed": sum(v.type.size for v in gone if v.role == "weight"),
            "state bytes removed": sum(v.nbytes for v in gone),
            "nodes before": nodes,
            "nodes after": step.total_nodes(),
        }
        verb = "would go" if self.dry_run else "removed"
        result.summary = f"{len(chosen)} of {len(norms)} BatchNorms {verb}"
        return result

    def _choose(
        self, found: TrainingAnatomy, norms: list[BatchNorm], removal: Removal, result: PassResult
    ) -> dict[BatchNorm, Plan]:
        """The BatchNorms to remove with what goes with each; a miss for each of the others."""
        kept = self._kept(found, norms)
        chosen: dict[BatchNorm, Plan] = {}
        for norm in norms:
            reason = kept[norm.node]
            if not reason and len(chosen) == self.max_removed:
                reason = f"max_removed={self.max_removed} others go"
            if not reason:
                reason = norm.obstacle
            if not reason:
                names = [state.name for state in norm.parameters.values()]
                plan = removal.plan_all(names, list(norm.gradients()), norm.own)
                reason = plan.obstacle
                if not reason:
                    chosen[norm] = plan
            if reason:
                result.miss(norm.site, f"kept: {reason}")
        return chosen

    def _kept(self, found: TrainingAnatomy, norms: Iterable[BatchNorm]) -> Mapping[Node, str]:
        """For every BatchNorm why it stays, "" for one that is to go."""
        if self.scope is not None:
            return {n.node: "" if fnmatchcase(n.node.scope, self.scope) else "its scope does not match" for n in norms}
        if self.select.startswith("pattern"):
            removed = removed_upstream(found)
            if removed or self.select == "pattern":
                return {n.node: "" if n.node in removed else "boost.LessBN keeps it" for n in norms}
        return _inside_blocks(norms, residual_joins(found))


def _inside_blocks(norms: Iterable[BatchNorm], joins: Iterable[Join]) -> dict[Node, str]:
    inner: dict[Node, Node] = {}
    last: dict[Node, Node] = {}
    for join in joins:
        inner.update((node, join.node) for node in join.inner)
        last.update((node, join.node) for node in join.last)
    kept: dict[Node, str] = {}
    for norm in norms:
        if norm.node in last:
            kept[norm.node] = f"the last one in its branch of the residual block that ends at %{last[norm.node].name}"
        else:
            kept[norm.node] = "" if norm.node in inner else "not inside a residual block"
    return kept


def _together(removal: Removal, norms: Mapping[BatchNorm, Plan]) -> Plan:
    """One plan for BatchNorms that have one each."""
    return removal.plan(
        {name for plan in norms.values() for name in plan.states},
        [value for norm in norms for value in norm.gradients()],
        [node for norm in norms for node in norm.own],
    )


def _rewire(graph: Graph, norms: Iterable[BatchNorm]) -> None:
    """Users of a removed output take the input, users of the input's gradient that of the output."""
    mapping: dict[Value, Value] = {}
    for norm in norms:
        mapping.update((output, norm.x) for output in norm.outputs)
        mapping.update(norm.dx())
    for value, new in list(mapping.items()):
        while new in mapping:
            new = mapping[new]
        mapping[value] = new
    users = [user for value in mapping for user in value.users]
    graph.replace(mapping)
    for user in users:
        _fold_casts(user)


def _fold_casts(node: Node) -> None:
    """A cast back to the type before a widening cast, as around a removed BatchNorm in float32, changes nothing."""
    inner = node.operand(0) if node.op.name == "Cast" else None
    if isinstance(inner, Node) and inner.op.name == "Cast":
        source = inner.operand(0)
        if node.type == source.type and tensor_type(inner).dtype.itemsize > tensor_type(source).dtype.itemsize:
            node.replace_uses(source)
