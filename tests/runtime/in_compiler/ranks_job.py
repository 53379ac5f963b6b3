"""A job for tests/ranks.py: enabled steps on real ranks, each on its own micro-batches."""

from __future__ import annotations

import mindspore as ms
from mindspore.communication import get_rank, init

import boost_compile as bc
from tests.ranks import report
from tests.runtime.in_compiler import steps


def main() -> None:
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    mine = steps.micro_batches()[get_rank() :: 2]
    values = {}
    for key, pipeline, reduces in (
        ("native", "gradient-accumulation{steps=2}", True),
        ("pass", "gradient-accumulation{steps=2},data-parallel", False),
    ):
        # MindSpore's training cell exchanges gradients by itself where the context says so.
        mode = ms.ParallelMode.DATA_PARALLEL if reduces else ms.ParallelMode.STAND_ALONE
        ms.set_auto_parallel_context(parallel_mode=mode, gradients_mean=True)
        net = steps.network()
        step = steps.cell_step(net, steps.momentum(net.trainable_params()))
        with bc.enable(pipeline, cell=step):
            for x, y in mine:
                step(x, y)
        values |= {f"{key}/{name}": value for name, value in steps.values(net).items()}
    report(values)
