"""Whether a program trains: a forward graph runs as well, and would report steps that change no weight."""

from __future__ import annotations

from ...core.errors import AnatomyError
from ...core.predicates import is_optimizer
from ...core.program import Program
from .interpretation import interpret
from .network import BACKWARD, network_parts

_NOT_TRAINED = {"unknown", "statistic"}

EXPORT = (
    "Export the training cell: cell = nn.TrainOneStepCell(nn.WithLossCell(network, loss_fn), optimizer).set_train(); "
    "mindspore.export(cell, inputs, labels, file_name='train', file_format='MINDIR')"
)
DIFFERENTIATE = (
    "bc.differentiate(program, 'momentum{lr=0.01,momentum=0.9}', loss='softmax-cross-entropy') adds a loss and an "
    "optimizer (no loss where the graph returns its loss)",
    "boost-compile --loss softmax-cross-entropy --optimizer 'momentum{lr=0.01,momentum=0.9}' adds a loss and an "
    "optimizer (without --loss where the graph returns its loss)",
)
"""In the words of Python, and of the commands."""


def check_trains(program: Program) -> None:
    """:class:`AnatomyError` where no graph of the schedule updates anything from a gradient. It says how to make a
    training graph of it. Linear in nodes."""
    missing = what_is_missing(program)
    if missing is None:
        return
    text = f"program '{program.name}' {missing}, so a step would train nothing."
    if program.source.get("file", "").lower().endswith(".onnx"):
        python, command = f"{DIFFERENTIATE[0]}.", f"{DIFFERENTIATE[1]}."
    else:
        python, command = f"{EXPORT}. Or {DIFFERENTIATE[0]}.", f"{EXPORT}. Or {DIFFERENTIATE[1]}."
    raise AnatomyError(text, python=python, command=command)


def what_is_missing(program: Program) -> str | None:
    """Why a step would train nothing, as the rest of a sentence; None for a program that trains.

    A graph without the marks of MindSpore's autodiff, such as one made by hand, trains where it writes state that is
    known to be trained (its role says so), or where an optimizer updates it from whatever the cell hands it.
    """
    has_backward = updates = False
    for name in program.schedule.graphs():
        graph = program.graphs[name]
        parts = network_parts(graph)
        if BACKWARD in parts.values():
            has_backward = True
        else:
            parts = {}  # without a backward part nothing tells forward from update
        for write in interpret(graph, {}).writes:
            states = {version.state.name for version in write.versions if version.state is not None}
            roles = {program.state[state].role for state in states if state in program.state}
            # A step of plain descent that is given its gradients looks like a hidden state that the network keeps.
            if "weight" in roles or (write.node not in parts and not roles <= _NOT_TRAINED):
                return None
            updates |= write.node not in parts
    nodes = (node for graph in program.graphs.values() for node in graph.all_nodes())
    if (has_backward and updates) or any(map(is_optimizer, nodes)):
        return None
    if has_backward:
        return "computes gradients, but no optimizer takes them"
    return "is a forward graph: it has no backward part and no optimizer"
