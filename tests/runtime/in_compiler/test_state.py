"""What an enabled step keeps beside the script's Parameters: seen, saved, loaded, and reported after each update."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.ir.core.graph import Graph
from boost_compile.runtime.in_compiler import hook
from boost_compile.runtime.training.result import StepResult
from mindspore import Tensor, nn

import boost_compile as bc
from tests.runtime.in_compiler import steps

pytestmark = pytest.mark.mindspore
PIPELINE = "gradient-accumulation{steps=4},overflow-check"


@pytest.fixture(autouse=True)
def _as_before():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    bc.disable()


def enabled_step(**options):
    net = steps.network()
    step = steps.cell_step(net, steps.momentum(net.trainable_params()))
    return step, bc.enable(PIPELINE, cell=step, **options)


def test_training_resumes_in_the_middle_of_a_window(tmp_path):
    batches = steps.micro_batches()
    step, handle = enabled_step()
    for at, (x, y) in enumerate(batches):
        if at == 6:
            ms.save_checkpoint(handle.append_to(step), str(tmp_path / "middle.ckpt"))
            assert handle.state["accumulation.count"].asnumpy() == 2
        step(x, y)
    whole = steps.values(step) | {name: p.asnumpy() for name, p in handle.state.items()}
    bc.disable()

    saved = ms.load_checkpoint(str(tmp_path / "middle.ckpt"))
    step, handle = enabled_step()
    ms.load_param_into_net(step, saved)
    handle.load(saved)
    for x, y in batches[6:]:
        step(x, y)
    resumed = steps.values(step) | {name: p.asnumpy() for name, p in handle.state.items()}
    assert resumed.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(resumed[name], value, name)

    saved.pop("accumulation.count")
    with pytest.raises(RuntimeFailure, match=r"lacks 'accumulation.count'"):
        handle.load(saved)


def test_a_window_is_reported_with_its_loss_and_its_overflow():
    seen: list[StepResult] = []
    step, handle = enabled_step(on_update=seen.append)
    before = steps.values(step)
    for at, (x, y) in enumerate(steps.micro_batches()):
        loss = step(x * np.inf if at == 2 else x, y)
        assert isinstance(loss, Tensor), "the step returns what it did"
        assert len(seen) == (at + 1) // 4
        if at == 3:
            assert steps.worst(steps.values(step), before) == 0
    assert [(r.overflow, r.updated, r.skipped_cycles) for r in seen] == [(True, False, 1), (False, True, 0)]
    assert seen[-1].loss == float(loss.asnumpy())
    assert {report.name for report in handle.reports} >= {"gradient-accumulation", "overflow-check"}
    assert bc.prove(bc.capture(step, *steps.micro_batches()[0]), handle.program).proved


def test_training_ends_where_all_updates_are_skipped():
    net = steps.network()
    step = steps.cell_step(net, steps.momentum(net.trainable_params()))
    x, y = steps.micro_batches()[0]
    bc.enable("overflow-check{max_skipped=2}")
    for _ in range(2):
        step(x * np.inf, y)
    with pytest.raises(RuntimeFailure, match="all skipped"):
        step(x * np.inf, y)


class WithDropout(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.dropout = nn.Dense(4, 3), nn.Dropout(p=0.5)

    def construct(self, x):
        return self.dense(self.dropout(x))


def seeds_in(graph: Graph) -> list[str]:
    return [str(v) for node in graph.all_nodes() if node.op.name == "Dropout" for v in node.operands[1:]]


def test_dropout_draws_by_the_seeds_of_the_cell(monkeypatch):
    """Not by that of a Session. What MindSpore makes of them is not the same in two runs of the plain cell either."""
    seeds: list[list[str]] = []
    genuine = hook.rewrite_step

    def seen(program, *rest):
        made = genuine(program, *rest)
        seeds.extend(seeds_in(graph) for graph in (*program.graphs.values(), made.graph))
        return made

    monkeypatch.setattr(hook, "rewrite_step", seen)
    net = WithDropout()
    step = steps.cell_step(net, steps.momentum(net.trainable_params()))
    with bc.enable(PIPELINE):
        losses = [float(step(*steps.micro_batches()[0]).asnumpy()) for _ in range(3)]
    before, after = seeds
    assert before
    assert before == after
    assert len(set(losses)) > 1, "it draws anew in each micro-batch"
