"""State that no update decides: where training starts, what forward passes write, what was removed."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...ir.analysis.training.network import network_parts
from ...ir.core.data import to_numpy
from ...ir.core.graph import Graph
from ...ir.core.predicates import is_random
from ...ir.core.program import Program
from ...ir.core.wording import counted
from ...ir.rewrite.seeds import SEED_ATTRIBUTES
from .context import Context, NotApplicable, Property, differing
from .promises import FREEZE, LESS_BN
from .report import Result
from .tolerance import Expected, compare


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
                # An optimizer that another one replaces takes its slots along.
                replaced = c.promises.unknown and variable.role != "weight"
                if _is_used(c.base, name) and not replaced and not _idle(c, name):
                    return self.failed(f"'{name}' is missing")
                continue
            theirs = ours[name]
            if theirs.type != variable.type:
                return self.failed(f"'{name}' is {theirs.type}, in the original {variable.type}")
            if bytes(theirs.data.view()) != bytes(variable.data.view()):
                far = float(np.max(np.abs(_wide(theirs) - _wide(variable)), initial=0))
                return self.failed(f"'{name}' starts off by {far:.3g}")
        return self.passed(f"{counted(len(c.base.state), 'state')}, bit for bit")


class ForwardState(Property):
    """State that forward and backward write (BatchNorm statistics, hidden states) goes on with every micro-batch as
    natively. The same arithmetic, so two units in the last place. That N micro-batches advance it N times, where one
    step of the original advances it once, is the known difference of accumulation."""

    name = "forward state"
    promise = "statistics advance with every micro-batch, as natively"

    def check(self, c: Context) -> Result:
        c.needs_forward()
        written = [n for n in c.reference.probe.written if n in c.subject.names]
        if not written:
            raise NotApplicable("forward and backward write no state")
        deviations, shown = [], False
        for _, ran, wanted in c.training:
            # What a forward pass leaves is rounded as often as it was written.
            unit = c.reference.probe.unit * 8 * c.length
            near = {n: v * (1 + unit) if v.dtype.kind == "f" else v for n, v in wanted.expected.state.items()}
            near = {n: np.asarray(v).astype(wanted.expected.state[n].dtype) for n, v in near.items()}
            expected = Expected(wanted.expected.before, wanted.expected.state, partial(tuple, [near]))
            deviations.append(compare(ran.state, expected, written))
            shown = shown or bool(differing(dict(wanted.expected.before), wanted.expected.state, written))
        return self.verdict(deviations, counted(len(written), "state"), shown=shown)


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


class RemovedBatchNorms(Property):
    """A BatchNorm that went away took its state along: no weight, slot or statistic of it is left in the program or
    used by a graph, and all that is left is a part of the original's state, bit for bit. That the network without it
    is trained right is shown by the other properties, for which it is the reference, and by its derivative."""

    name = "removed BatchNorms"
    promise = "removed BatchNorms leave no state"
    runs_original = False

    def check(self, c: Context) -> Result:
        removal = c.promises.one(LESS_BN)
        if removal is None:
            raise NotApplicable("no pass removes BatchNorms")
        if removal.options()["dry_run"]:
            raise NotApplicable("less-bn was asked only to report")
        gone = [n for n in c.original.state if n not in c.program.state]
        if not gone and not any(report.changed for report in c.program.reports if report.name == LESS_BN):
            raise NotApplicable("less-bn found no BatchNorm to remove")
        if not gone:
            return self.failed("no state of the original went away")
        # Whatever else belongs to a removed layer: its name is the scope of its gamma and statistics.
        layers = {n.rpartition(".")[0] for n in gone if c.original.state[n].role == "statistic"}
        left = [
            n
            for n in c.program.state
            if any(n == layer or f".{n}".find(f".{layer}.") >= 0 for layer in layers) and n in c.original.state
        ]
        used = {n for graph in c.program.graphs.values() for n in graph.states}
        stray = sorted({*left, *(used & set(gone))})
        if stray:
            return self.failed(f"still there: {', '.join(stray[:3])}")
        detail = f"{counted(len(layers), 'layer')}, {counted(len(gone), 'state')} gone"
        return self.passed(detail)


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
