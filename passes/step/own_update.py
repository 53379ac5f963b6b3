"""The update that a training cell makes only where its own check lets it: laid open for a pass, and put back.

While it is laid open, the update happens in any case, and the graph returns besides whether it should have been left
out.
"""

from __future__ import annotations

from collections.abc import Collection

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.analysis.training.network import network_parts
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Node
from ...ir.core.op import CALL
from ...ir.core.sites import site
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.effects.outline import skip_where
from ...ir.rewrite.graft import inline
from ...ir.rewrite.settle_results import settle_results
from .own_check import find_own_check, skips
from .results import named_results, with_results
from .split import forget_unused

LEFT_OUT = "own_check.left_out"
"""The result that says whether the update should have been left out."""


def lay_open(graph: Graph, *, scope: str) -> frozenset[Node] | None:
    """Takes the update out of the condition of the file. Returns the effects that stand beside it (the loss scale
    moves in any case); None where the file has no check of its own."""
    if find_own_check(graph, Effects(graph).list) is None:
        return None
    settle_results(graph, network_parts(graph))
    fx = Effects(graph)
    own = find_own_check(graph, fx.list)
    assert own is not None
    if len(own.conditions) > 1:
        raise PassError(
            f"the file itself decides about its updates by {counted(len(own.conditions), 'condition')}, and another "
            "optimizer has one: export nn.TrainOneStepCell, and let loss-scale and overflow-check do that"
        )
    ((condition, skipping),) = own.conditions
    switches = {user for user, i in condition.use_sites() if user.op.name == "Switch" and i == 0}
    calls = [e.node for e in fx.list if e.node.op is CALL and e.node.operand(0) in switches]
    for call in calls:
        taker = next((user for user, i in call.use_sites() if not orders_only(user, i)), None)
        if taker is not None:
            raise PassError(
                f"{site(taker)} takes a value out of the update that the file makes behind its own check "
                f"({site(call)}): "
                "export nn.TrainOneStepCell, and let loss-scale and overflow-check do that"
            )
    left_out = skips(graph, own, scope=scope)
    beside = frozenset(e.node for e in fx.list if not e.passive and e.node not in calls)
    for call in calls:
        switch = call.operand(0)
        assert isinstance(switch, Node)
        inline(fx, call, switch.operand(2 if skipping else 1))
    fx.commit(with_results(graph, [(LEFT_OUT, left_out)]))
    forget_unused(graph)
    return beside


def put_back(graph: Graph, beside: Collection[Node], *, scope: str) -> None:
    """Puts all effects but those ``beside`` the update behind the check again."""
    results = dict(named_results(graph))
    left_out = results.pop(LEFT_OUT)
    fx = Effects(graph)
    updates = [e for e in fx.list if not e.passive and e.node not in beside]
    # Gradients stay in front of the Switch, where later passes look for them.
    gradients = [v for path in gradient_paths(graph) for v in path.at("clip", graph).values]
    skip_where(fx, left_out, updates, stay=[*results.values(), *gradients], name="update", scope=scope)
    graph.outputs = tuple(results)
    values = list(results.values())
    fx.commit(values[0] if len(values) == 1 else graph.create("MakeTuple", values))
