"""When a loss scale changes: the rule of MindSpore's ``nn.DynamicLossScaleUpdateCell``, once a cycle, in the graph.

The rule needs the scale's state and the answer of the overflow check, which two passes put there in either order;
whichever comes second puts the rule.
"""

from __future__ import annotations

from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.gradient_path import divisor_of, gradient_paths, is_fed, updating_graphs
from ...ir.analysis.training.loss_multipliers import is_among, loss_multipliers
from ...ir.analysis.training.results import asks_for_overflow, name_results
from ...ir.builders.nodes import Nodes
from ...ir.core.errors import AnatomyError, PassError
from ...ir.core.graph import Graph, Value
from ...ir.core.names import LOSS_SCALE, OVERFLOW
from ...ir.core.program import Program
from ...ir.core.types import tensor
from ...ir.rewrite.effects.editing import Effects
from .group_scale_rule import put_group_rule
from .names import CLEAN, OWN, SCALE, SKIPPED, value_of
from .results import named_results

SCOPE = "loss-scale"


def refuse_second_scale(program: Program, asked: str) -> None:
    """A program has one loss scale, or one for each group of layers; ``asked``: the pass that is to bring it."""
    if SCALE in program.state or value_of(0) in program.state:
        raise PassError("the program scales its loss already: ask for loss-scale or group-loss-scale, and once")
    for name, graph in program.graphs.items():
        if len(program.graphs) == 1 and asks_for_overflow(graph):  # where legalize was not needed, nobody has named it
            name_results(program, graph)
        if LOSS_SCALE in graph.outputs:
            raise PassError(f"graph '{name}' scales its loss by itself: leave {asked} out, or export without it")


def scales_its_loss(program: Program) -> bool:
    """Whether an earlier pass, or the training cell by itself, has put a loss scale there."""
    if SCALE in program.state or value_of(0) in program.state:
        return True
    # The tests of overflow-check ask for gradients that are not finite, whether a loss is scaled or not.
    checked = SKIPPED in program.state and OWN not in program.state[SKIPPED].info
    asks = any(LOSS_SCALE in g.outputs or (asks_for_overflow(g) and not checked) for g in program.graphs.values())
    return asks or any(_unscales(graph) for graph in updating_graphs(program) if not is_fed(graph))


def _unscales(graph: Graph) -> bool:
    """Whether the file multiplies the loss by a number by which it divides all gradients."""
    try:
        found = anatomy(graph)
    except AnatomyError:
        return False  # who needs it is told why
    known = [m for m in loss_multipliers(found) or () if m != 1]
    divisors = [
        [d for p in path.points if p.stage == "unscale" for v in p.values if (d := divisor_of(v)) is not None]
        for path in (gradient_paths(graph, found) if known else ())
    ]
    return bool(divisors) and all(any(is_among(known, d) for d in met) for met in divisors)


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
        overflow = dict(named_results(graph)).get(OVERFLOW)
        if overflow is not None:
            _put(graph, overflow, rule["factor"], rule["window"], rule["min"], rule["max"])


def _put(graph: Graph, overflow: Value, factor: float, window: int, least: float, most: float) -> None:
    fx, n = Effects(graph), Nodes(graph, SCOPE)
    scale_state, clean_state = (graph.state(name, tensor("float32")) for name in (SCALE, CLEAN))
    scale, clean = (fx.load(state, scope=SCOPE) for state in (scale_state, clean_state))
    in_a_row = n.op("Add", clean, n.number(1.0))
    grows = n.op("GreaterEqual", in_a_row, n.number(window))
    larger = n.op("Minimum", n.op("Mul", scale, n.number(factor)), n.number(most))
    smaller = n.op("Maximum", n.op("Mul", scale, n.number(1.0 / factor)), n.number(least))
    kept_or_larger = n.op("Select", grows, larger, scale)
    fx.append("Assign", [scale_state, n.op("Select", overflow, smaller, kept_or_larger)], scope=SCOPE)
    starts_anew = n.op("LogicalOr", overflow, grows)
    fx.append("Assign", [clean_state, n.op("Select", starts_anew, n.number(0.0), in_a_row)], scope=SCOPE)
    fx.commit()
