"""No graph of a program repeats what another drew, whatever passes made of one graph with dropout.

The network's loss spells the mask (drawing_network.py), so every step shows what it drew.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.predicates import is_random
from boost_compile.ir.rewrite.seeds import seeds_of
from mindspore import nn

import boost_compile as bc
from tests.ir.rewrite.drawing_network import BITS, Drawing, powers

STEPS = 18
SETTLED = 5
"""So many runs of a kernel are the same in every process. Then MindSpore picks a number of threads by their times, and
its masks follow from that."""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> tuple[bc.Program, list[int]]:
    """The exported cell, its seed set as a user sets it, and the masks that MindSpore draws in training it."""
    ms.set_seed(3)
    network = Drawing()
    cell = nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.0, 0.9)).set_train()
    path = tmp_path_factory.mktemp("drawing") / "drawing.mindir"
    ms.export(cell, ms.Tensor(powers()), file_name=str(path), file_format="MINDIR")
    return bc.load(str(path)), [int(cell(ms.Tensor(powers())).asnumpy()) for _ in range(STEPS)]


def masks(program: bc.Program, seed: int | None = None, steps: int = STEPS) -> list[tuple[str, int]]:
    """The consuming graph and the mask of each step."""
    session = bc.Session(program, device="CPU", seed=seed)
    found = []
    for _ in range(steps):
        graph = session.consumer.name
        found.append((graph, int(session.step(powers()).loss)))
    return found


@pytest.mark.parametrize(
    "pipeline",
    [
        "gradient-accumulation{steps=3,split=fused}",
        "gradient-freeze{groups=2,type=continuous,total_steps=10}",
        "gradient-accumulation{steps=2,split=fused},gradient-freeze{groups=2}",
    ],
)
def test_no_draw_repeats(native: tuple[bc.Program, list[int]], pipeline: str) -> None:
    source, expected = native
    program = bc.compile(source, pipeline)
    assert len(set(expected)) == STEPS
    found = masks(program)
    assert len({graph for graph, _ in found}) > 1, "one graph draws, nothing was tried"
    assert len({mask for _, mask in found}) == STEPS
    first = found[0][0]
    own = [mask for graph, mask in found if graph == first]
    assert own[:SETTLED] == expected[:SETTLED], "the first graph draws what MindSpore draws"
    seeded = [mask for _, mask in masks(program, seed=5)]
    assert len(set(seeded)) == STEPS


def test_accumulation_with_apply_draws_what_mindspore_draws(native: tuple[bc.Program, list[int]]) -> None:
    source, expected = native
    found = masks(bc.compile(source, "gradient-accumulation{steps=3}"), steps=SETTLED)
    assert [mask for _, mask in found] == expected[:SETTLED]


def test_a_self_contained_file_in_two_compilations(native: tuple[bc.Program, list[int]], tmp_path: Path) -> None:
    once = bc.compile(native[0], "gradient-accumulation{steps=2,split=fused}")
    program = bc.compile(once, "gradient-freeze{groups=2}")
    path = tmp_path / "drawing.mindir"
    program.save(str(path))
    graph = nn.GraphCell(ms.load(str(path)))
    results = [graph(ms.Tensor(powers())) for _ in range(8)]
    losses = [r[0] if isinstance(r, tuple) else r for r in results]
    assert len({int(loss.asnumpy()) for loss in losses}) == 8


def test_trials_of_a_line_search_take_what_was_drawn(native: tuple[bc.Program, list[int]], tmp_path: Path) -> None:
    """The same mask for each trial of a micro-batch, and no graph draws it again."""
    basis = tmp_path / "basis.npy"
    np.save(basis, np.eye(2, 2 * BITS, dtype=np.float32))
    pipeline = f"gradient-accumulation{{steps=2,split=fused}},dim-reduce{{n_components=2,basis={basis}}}"
    program = bc.compile(native[0], pipeline)
    drawing = {n: [x for x in g if is_random(x)] for n, g in program.graphs.items()}
    assert program.schedule.search is not None
    assert not drawing[program.schedule.search.trial]
    seeds = [seeds_of(node) for nodes in drawing.values() for node in nodes]
    assert all(a != b for a, b in pairwise(seeds))
