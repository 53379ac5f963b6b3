"""The evaluation network of a program, as a user asks for it: up to a node, with trained weights, for other batches."""

from __future__ import annotations

from ...ir.core.program import Program
from ...ir.rewrite.evaluation import Evaluation, evaluation

ANY = "any"


def forward(
    program: Program, result: str | None, state: str | None, batch: int | str | None, runs: bool = True
) -> Evaluation:
    """The network, up to the node ``result``, with the weights of the file ``state``, for ``batch`` samples
    (:data:`ANY`: any number); each only if given. ``runs``: MindSpore is to run what is written. Error where
    the file lacks a weight, or a node does not allow the batch."""
    network = evaluation(program, result)
    if state is not None:
        from ...runtime.state.checkpoint import read_state

        network = network.with_values(read_state(state), state)
    if batch is not None:
        network = network.resized(None if batch == ANY else int(batch), runs=runs)
    return network
