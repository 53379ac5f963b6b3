"""State that no update decides: where training starts, what forward passes write, what was removed."""

from __future__ import annotations

import numpy as np

from ...ir.analysis.training.network import network_parts
from ...ir.core.data import to_numpy
from ...ir.core.graph import Graph
from ...ir.core.predicates import is_random
from ...ir.core.program import Program
from ...ir.core.wording import counted
from ...ir.rewrite.seeds import SEED_ATTRIBUTES
from .context import Context, NotApplicable, Property
from .promises import FREEZE, LESS_BN
from .report import Result


class InitialState(Property):
    """Every state of the original is there with its name, type and bits, and its role; only passes that make another
    network may take some away. Exact: nothing computes it."""

    name = "initial state"
    promise = "training starts where the original starts"
    runs_original = False

    def check(self, c: Context) -> Result:
        ours = c.program.state
        for name, variable in c.base.state.items():
            if name not in ours:
                gone = name in c.stated.gone or (c.promises.unknown and variable.role != "weight")
                if _is_used(c.base, name) and not gone and not _idle(c, name):
                    return self.failed(f"'{name}' is missing")
                continue
            theirs = ours[name]
            if theirs.type != variable.type:
                return self.failed(f"'{name}' is {theirs.type}, in the original {variable.type}")
            if bytes(theirs.data.view()) != bytes(variable.data.view()):
                far = float(np.max(np.abs(_wide(theirs) - _wide(variable)), initial=0))
                return self.failed(f"'{name}' starts off by {far:.3g}")
        if c.promises.having(LESS_BN):
            used = {name for graph in c.program.graphs.values() for name in graph.states}
            for name in sorted(ours.keys() & c.original.state.keys() - used):
                if _is_used(c.original, name):
                    return self.failed(f"'{name}' is left, and nothing uses it")
        return self.passed(f"{counted(len(c.base.state), 'state')}, bit for bit")


class RandomDraws(Property):
    """Every random primitive of the original is there, with the same attributes but for seeds, and no other; in this
    verification dropout keeps everything, so only this tells whether the program still drops. Those of the network are
    counted on the graphs that take a micro-batch, those of the update side (noise on gradients) on the graphs that
    update. Exact."""

    name = "random draws"
    promise = "each micro-batch and each update draws the random numbers that the original draws"
    runs_original = False

    def check(self, c: Context) -> Result:
        ((_, graph),) = c.base.graphs.items()
        network, update = draws_of(graph)
        if not network and not update:
            raise NotApplicable("the original draws no random numbers")
        drawn = {name: draws_of(c.program.graphs[name]) for name in c.program.schedule.graphs()}
        for name, (ours, _) in drawn.items():
            if c.program.graphs[name].inputs and ours != network:
                detail = f"graph '{name}' holds {counted(len(ours), 'random node')} of the network"
                return self.failed(f"{detail}, the original {len(network)}")
        # The updates of frozen weights are gone, with what they draw.
        found = [ours for _, ours in drawn.values() if ours]
        if update and (not found or (any(ours != update for ours in found) and not c.promises.having(FREEZE))):
            most = max(map(len, found), default=0)
            return self.failed(f"updates hold {counted(most, 'random node')}, those of the original {len(update)}")
        return self.passed(counted(len(network) + len(update), "random node"))


def _idle(c: Context, name: str) -> bool:
    """Whether a hyperparameter is read to no end and never written, so that a clean-up may drop it. If it had a say,
    updates would be off without it."""
    state = c.reference.initial[name]
    after = c.reference.step(c.reference.initial, c.micro_batches(0)[0])[1][name]
    return c.base.state[name].role == "hyperparameter" and state.tobytes() == after.tobytes()


def _is_used(program: Program, name: str) -> bool:
    return any(name in graph.states for graph in program.graphs.values())


def _wide(variable: object) -> np.ndarray:
    return np.asarray(to_numpy(variable.type, variable.data)).astype(np.float64)  # type: ignore[attr-defined]


def draws_of(graph: Graph) -> tuple[list[str], list[str]]:
    """The random nodes of forward and backward, and the others, without their seeds: the graphs of a program have
    different ones."""
    seeds = {name for pair in SEED_ATTRIBUTES for name in pair}
    network = network_parts(graph)
    inside, outside = list[str](), list[str]()
    for node in filter(is_random, graph.all_nodes()):
        attributes = {name: value for name, value in node.attributes.items() if name not in seeds}
        (inside if node in network else outside).append(f"{node.op.name} {node.type} {attributes}")
    return sorted(inside), sorted(outside)
