"""When a loss scale changes: the rule of MindSpore's ``nn.DynamicLossScaleUpdateCell``, once a cycle, in the graph.

The rule needs the scale's state and the answer of the overflow check, which two passes put there in either order;
whichever comes second puts the rule.
"""

from __future__ import annotations

from ...ir.analysis.training.gradient_path import updating_graphs
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Value
from ...ir.core.program import Program
from ...ir.core.types import tensor
from ...ir.rewrite.effects.editing import Effects
from .group_scale_rule import put_group_rule
from .names import CLEAN, SCALE, value_of
from .results import named_results

SCOPE = "loss-scale"


def refuse_second_scale(program: Program) -> None:
    """A program has one loss scale, or one for each group of layers."""
    if SCALE in program.state or value_of(0) in program.state:
        raise PassError("the program scales its loss already: ask for loss-scale or group-loss-scale, and once")


def put_scale_rule(program: Program) -> None:
    """On overflow the scale shrinks by its factor, after ``window`` cycles in a row without one it grows by it.

    Does nothing where the scale is static, or no graph knows of overflows (yet). Scales of groups have a rule of their
    own.
    """
    put_group_rule(program)
    if CLEAN not in program.state:
        return
    rule = program.state[SCALE].info
    for graph in updating_graphs(program):
        overflow = dict(named_results(graph)).get("overflow")
        if overflow is not None:
            _put(graph, overflow, rule["factor"], rule["window"], rule["min"], rule["max"])


def _put(graph: Graph, overflow: Value, factor: float, window: int, least: float, most: float) -> None:
    def number(value: float) -> Value:
        return graph.constant(scalar_tensor("float32", value))

    def node(op: str, *operands: Value) -> Value:
        return graph.create(op, list(operands), scope=SCOPE)

    fx = Effects(graph)
    scale_state, clean_state = (graph.state(name, tensor("float32")) for name in (SCALE, CLEAN))
    scale, clean = (fx.load(state, scope=SCOPE) for state in (scale_state, clean_state))
    in_a_row = node("Add", clean, number(1.0))
    grows = node("GreaterEqual", in_a_row, number(window))
    larger = node("Minimum", node("Mul", scale, number(factor)), number(most))
    smaller = node("Maximum", node("Mul", scale, number(1.0 / factor)), number(least))
    kept_or_larger = node("Select", grows, larger, scale)
    fx.append("Assign", [scale_state, node("Select", overflow, smaller, kept_or_larger)], scope=SCOPE)
    starts_anew = node("LogicalOr", overflow, grows)
    fx.append("Assign", [clean_state, node("Select", starts_anew, number(0.0), in_a_row)], scope=SCOPE)
    fx.commit()
