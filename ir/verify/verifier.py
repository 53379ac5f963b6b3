"""The verifier: what the emitter and MindSpore rely on. Linear in nodes and operands.

Two sweeps over each graph (:mod:`.graph`), then what spans graphs (:mod:`.calls`), then what the program
promises (:mod:`.program`). A graph whose list is broken is reported as that and not looked at further.
"""

from __future__ import annotations

from itertools import islice

from ..core.errors import VerifyError
from ..core.graph import Graph
from ..core.op import CALL, Op
from ..core.predicates import has_token, is_effect, rests
from ..core.primitives import facts
from ..core.program import Program
from ..core.walk import dead_nodes
from .calls import call_acts, check_calls
from .graph import check_graph, check_use_counts
from .problems import Problems
from .program import check_outputs, check_program, check_states


def verify(subject: Program | Graph, limit: int = 20) -> None:
    """Raises VerifyError listing the problems of a program, or of a graph with its functions: the first ``limit``, the
    gravest first. Each names graph, node and scope, says what is wrong and what to do, and shows the place."""
    problems = Problems()
    if isinstance(subject, Program):
        for name, graph in subject.graphs.items():
            if graph.name != name:
                problems.of_program(f"graph '{graph.name}' stands under the name '{name}'", "rename one of the two")
            _check(graph, problems)
            check_states(graph, subject, problems)
        check_program(subject, problems)
        title = f"program '{subject.name}'"
    else:
        _check(subject, problems)
        title = f"graph '{subject.name}'"
    if problems.found:
        raise VerifyError(problems.report(title, limit))


def loses_effects(program: Program) -> bool:
    """Whether an effect would silently not happen, or has no token that says when. Of all that :func:`verify` refuses,
    this alone would be hidden by later passes, which take such an effect for dead or leave it out of the chain of
    tokens. What else is broken stays so, or is of no consequence. Costs a tenth of :func:`verify`."""
    graphs = [graph for main in program.graphs.values() for graph in main.all_graphs()]
    return any(_loses_effects(graph) for graph in graphs)


def _loses_effects(graph: Graph) -> bool:
    writing: dict[Op, bool] = {}
    nodes = list(islice(reversed(graph), len(graph)))
    for node in nodes:
        op = node.op
        if op not in writing:
            writing[op] = bool(facts(op).writes) and not facts(op).any_tensor
        if writing[op] and not has_token(node) and not rests(node):
            return True
    return any(call_acts(node) if node.op is CALL else is_effect(node) for node in dead_nodes(nodes))


def _check(main: Graph, problems: Problems) -> None:
    graphs = main.all_graphs()
    sweeps = [check_graph(graph, problems) for graph in graphs]
    intact = [sweep for sweep in sweeps if sweep is not None]
    if len(intact) < len(graphs):
        return
    check_use_counts(intact, problems)
    if all(sweep.defined for sweep in intact):
        check_calls(intact, problems)
    check_outputs(main, problems)
