"""What checks and limits of gradients cost in a step: a finite test, a loss scale, a clip, and all three together.

The sessions of a network run in one process, in turns, and a ratio is the median of the turns'; nothing accumulates.

    python -m benchmarks.safety [NETWORK ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from boost_compile.ir.analysis.cost.running_order import is_kernel
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Node, tensor_type
from boost_compile.ir.core.primitives import facts
from boost_compile.ir.core.types import tensor
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower
from mindspore import amp, nn, ops

import boost_compile as bc
from benchmarks.native_step import native, seconds
from benchmarks.sessions import seconds_a_step
from benchmarks.tables import table
from benchmarks.turns import FEWEST, MOST, in_turns, milliseconds, ratio
from tests.cells.zoo import Scaled
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES

NETWORKS = ("lenet_bn", "gpt", "resnet18", "mobilenet_v2")
ALL = "overflow-check,loss-scale,clip-gradients"
PIPELINES = ("overflow-check", "loss-scale", "clip-gradients", ALL)
STEPS = 6
WORTH = [
    ["updates that may be skipped always run", "1.66, 1.69", "1.16, 1.17", "", "stays"],
    ["small gradients measured as one", "1.29, 1.66", "1.04, 1.22", "", "stays; they are scaled one by one"],
    ["broadcasting", "", "", "+75 % (GPT), +118 % in half precision", "stays"],
    ["transposing", "", "", "+20 % (GPT), +17 % (ViT)", "stays"],
    ["small updates made at once, in arenas", "1.25, 1.30", "1.02, 1.03", "", "went: one network gains"],
    ["numbers and averages left to the host", "0.95, 1.09", "0.96, 1.02", "", "went"],
    ["the norm as finite test", "0.88, 1.00", "0.95, 1.00", "", "went"],
    ["reciprocals but of a loss scale, row means, self-products, dropping", "0.91, 0.99", "0.95, 1.00", "", "went"],
    ["late casts", "", "", "+4 % (GPT in half precision)", "went"],
    ["staggering, zeros that are computed", "", "", "0 % (GPT), +11 % (resnet18, batch 8)", "went"],
]
"""Of lowerings that went, or were in question: the cost of leaving each out."""


class Safe(Scaled):
    """MindSpore's own way to all three: its cell with a dynamic loss scale, and its function that clips. The scale
    begins and grows as that of the pass, so that no step overflows on either side."""

    def __init__(self, network, optimizer):
        scale = nn.DynamicLossScaleUpdateCell(2.0**16, 2, 2000)
        nn.TrainOneStepWithLossScaleCell.__init__(self, network, optimizer, scale)

    def construct(self, *inputs):
        loss = self.network(*inputs)
        gradients = self.scaled_gradients(loss, self.scale_sense, inputs)
        overflow = self.process_loss_scale(ops.logical_not(amp.all_finite(gradients)))
        if not overflow:
            self.optimizer(ops.clip_by_global_norm(gradients, 1.0))
        return loss, overflow, self.scale_sense


def _ratios(name: str) -> tuple[list[str], list[str]]:
    """A row of each table: what each pipeline takes by the source, and by MindSpore's own cells."""
    source, case = bc.load(str(export_once(name, zoo_folder()))), CASES[name]
    programs = [source, *(bc.compile(source, pipeline) for pipeline in PIPELINES)]
    sessions = [bc.Session(program) for program in (*programs, _scaled(source))]
    cells = [native(case), native(replace(case, wrap=Safe))]
    batches = case.batches(STEPS)
    ours = [partial(seconds_a_step, session, batches) for session in sessions]
    *taken, plain, safe = in_turns([*ours, *(partial(seconds, cell, batches) for cell in cells)])
    base, *others = taken
    every = others[PIPELINES.index(ALL)]
    sizes = [tensor_type(node.operand(i)).size for node, i in _takers(source)]
    kernels = [_kernels(program) for program in (programs[0], programs[-1])]
    costs = [
        name,
        milliseconds(base),
        milliseconds(every),
        f"{len(sizes)}, of {sum(sizes):,} elements",
        *(f"{ratio(turns, base):.2f} ({min(turns) / min(base):.2f})" for turns in others),
        f"{kernels[0]} to {kernels[1]}",
    ]
    return costs, [
        name,
        milliseconds(plain),
        *(f"{ratio(*two):.2f}" for two in ((safe, plain), (every, plain), (every, safe))),
    ]


def _scaled(source: bc.Program) -> bc.Program:
    """The source with each gradient multiplied by a number, which is 1: less no clip can do."""
    program = source.copy()
    factor = program.add_state("factor", tensor("float32"), "hyperparameter", scalar_tensor("float32", 1.0).data)
    (graph,) = program.graphs.values()
    fx = Effects(graph)
    by = fx.load(graph.state(factor.name, factor.type))
    for node, i in _takers(program):
        node.set_operand(i, graph.create("Mul", [node.operand(i), by]))
    fx.commit()
    return program


def _takers(program: bc.Program) -> list[tuple[Node, int]]:
    """The optimizers of a program of one graph, each with the operand that its gradient is."""
    (graph,) = program.graphs.values()
    return [(node, i) for node in graph if (i := facts(node.op).gradient) is not None]


def _kernels(program: bc.Program) -> int:
    """The kernels of a step as MindSpore gets it, without those behind a Switch."""
    graph = program.graphs[next(iter(program.schedule.graphs()))]
    return sum(map(is_kernel, lower(graph, Context(program, "cpu")).graph))


def run(networks: Sequence[str] = NETWORKS) -> str:
    head = ["network", "step of the source", "step with all three", "gradients", *PIPELINES[:-1], "all three"]
    head += ["a product alone", "kernels"]
    costs, by_cells = zip(*map(_ratios, networks), strict=True)
    lines = [
        "Time of a step of a compiled program by a step of the source, without accumulation: the median ratio of "
        f"{FEWEST} to {MOST} turns of {STEPS} steps, all of a network in turns in one process, and in brackets that of "
        "the shortest turns, which other work on the machine disturbs least. Batches of 4, so that what is done for "
        "each weight shows. `loss-scale` is dynamic, and brings `overflow-check` along; the clip limits the norm of "
        "all gradients to 1. *A product alone*: the source with each gradient multiplied by a number, as any clip must "
        "do. *Kernels*: those of the source and of all three, without those behind a Switch.",
        "",
        *table(head, costs),
        "",
        "The same turns by MindSpore's own cells: `nn.TrainOneStepCell`, and with all three "
        "`nn.TrainOneStepWithLossScaleCell`, with `amp.all_finite` and `ops.clip_by_global_norm`:",
        "",
        *table(
            ["network", "TrainOneStepCell", "MindSpore's with all three, by it", "ours, by it", "ours by MindSpore's"],
            by_cells,
        ),
        "",
        "What is left of the cost: MindSpore starts one kernel after the other, 3 to 5 µs each beside its "
        "work. Small gradients are measured as one row, and scaled one by one. Big ones are tested by "
        "products with zeros, their squares are added up by rows, and each is multiplied once. An update that"
        " an overflow may skip runs with operands by which nothing changes where it is, unless its products "
        "would take longer than the Switch.",
        "",
        "What lowerings for CPU were worth on 2026-11-29, when most of them went: a step without each by a step with "
        "all of them, overflow-check alone and all three, on a machine with other work. Memory: what a process grows "
        "by without it.",
        "",
        *table(["lowering", "gpt", "lenet_bn", "memory", ""], WORTH),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run(sys.argv[1:] or NETWORKS))
