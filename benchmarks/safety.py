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
        "What is left of the cost, by MindSpore's profiler: on two cores the runtime starts one kernel after the "
        "other, so each kernel more takes 3 to 5 µs beside its work, wherever it stands. Small gradients are joined "
        "in a row, for their update takes them so (`runtime/lowering/joint_updates.py`): the row is measured, scaled "
        "and tested as one. Each big gradient is multiplied once, in a kernel that reads and writes it. The squares "
        "of big ones, and of the row, are added up by a product of each with itself, 0.5 ns an element. Behind these "
        "measurements come the finite test, the factor of the clip, and the operands by which a skipped update "
        "changes nothing, some twelve kernels of one number each ([mindir.md](mindir.md) has the times of kernels). "
        "Where weights are few and big, their norm is the finite test, and what is to be done where it overflows "
        "stands behind a Switch; where they are many, the Switch would cost more than tests of their own. The rule "
        "of the scale, the count of skipped cycles and that of steps are computed by the session behind the graph.",
        "",
        "Goal for all three: 1.10. What cannot be less: an update that waits for the norm of all gradients runs when "
        "the last one is there, and no more beside the backward part. A kernel written in C for a trial, which "
        "measured and scaled all gradients where they lay, and nothing else, took 1.16 of a step of the GPT, 1.07 of "
        "LeNet, 1.08 of resnet18 and 1.04 of mobilenet_v2 (2026-11-28, behind updates of each weight by itself). "
        "Gradients that a graph returns, for the host to measure and scale, and that another takes, cost more: 1.38 "
        "of a step of the GPT, 1.20 of LeNet, 1.18 of resnet18, with nothing done to them. Three things were tried "
        "and gained nothing: a finite test by one product with a vector in the place of two (29 µs by two and 30 by "
        "one for 4,096 elements, 40 and 41 for 16,384, 272 and 1,066 for 262,144); one product of all gradients, "
        "taken apart for updates of each; squares as a product of eight columns (0.5 ns an element in a graph by "
        "itself on 2026-11-28, where one column took 1.1, and squares and sums of rows 0.6; in steps of resnet18 and "
        "mobilenet_v2 the three were alike). No kernel of MindSpore was found that adds up squares faster than 0.5 ns "
        "an element; numpy's `dot` takes 0.15 in the same process.",
        "",
        "The kernel of the trial is not used. It would write a gradient where it lies, and MindSpore may let two "
        "values share memory: after this compiler it merges equal nodes, and drops those that change nothing. "
        "`InplaceMul`, MindSpore's own, takes longer than `Mul` (with the kernel in front of both 1.0 ns an "
        "element and 0.6, two cores). So where nearly all time beside the network goes into big gradients, 1.10 is "
        "out of reach: on resnet18 the product alone took 1.09, and 1.12 in another run, and the Switch 0.8 to 1.6 "
        "ms of 75 to 130 (some 9 µs a state). One way is left: `ApplyMomentum` could take the factor of the clip "
        "in its rate and its momentum, if its slot were kept divided by it. But then the Parameter of a live "
        "network would not hold the slot.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(run(sys.argv[1:] or NETWORKS))
