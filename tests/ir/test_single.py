"""The self-contained form: one MindIR that plain MindSpore trains, on the same trajectory as the program's own
session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests.networks import CASES

Exported = Callable[[str], Path]


def train_graph_cell(path: Path, batches: list[tuple[np.ndarray, ...]]) -> tuple[list[float], dict[str, np.ndarray]]:
    """What a user without this project does with the file."""
    import mindspore as ms
    from mindspore import nn

    cell = nn.GraphCell(ms.load(str(path)))
    cell.set_train()
    losses = [float(cell(*map(ms.Tensor, batch)).asnumpy()) for batch in batches]
    return losses, {p.name: p.asnumpy().copy() for p in cell.get_parameters()}


@pytest.mark.parametrize("split", ["apply", "fused"])
@pytest.mark.parametrize("name", ["mlp_adam", "lenet_bn", "gpt", "two_inputs", "mlp_asgd", "branch"])
def test_plain_mindspore_trains_the_file_as_the_session_trains_the_program(
    exported: Exported, tmp_path: Path, name: str, split: str
) -> None:
    program = bc.compile(bc.load(str(exported(name))), f"gradient-accumulation{{steps=3,split={split}}}")
    path = tmp_path / "whole.mindir"
    program.save(str(path))
    batches = CASES[name].batches(8)  # two cycles and two thirds
    losses, state = train_graph_cell(path, batches)
    session = bc.Session(program)
    expected = [float(session.step(*batch).loss) for batch in batches]
    assert losses == expected
    reference = session.state()
    assert state.keys() == reference.keys()
    for key, value in reference.items():
        np.testing.assert_array_equal(state[key], value, err_msg=key)
    assert float(state["accumulation.count"]) == 2.0


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("lenet_bn", "gradient-freeze{groups=4}"),
        ("mlp_adam", "gradient-accumulation{steps=2},gradient-freeze{groups=2,type=continuous,probability=0.5}"),
        (
            "lenet_bn",
            "gradient-accumulation{steps=2,split=fused},overflow-check,gradient-freeze{groups=3,total_steps=5}",
        ),
    ],
)
def test_the_file_runs_the_variant_that_each_cycle_is_for(
    exported: Exported, tmp_path: Path, name: str, pipeline: str
) -> None:
    import mindspore as ms
    from mindspore import nn

    program = bc.compile(bc.load(str(exported(name))), pipeline)
    program.save(str(tmp_path / "whole.mindir"))
    cell = nn.GraphCell(ms.load(str(tmp_path / "whole.mindir")))
    cell.set_train()
    session = bc.Session(program)
    seen = set()
    for batch in CASES[name].batches(13):  # of which one ends in mid-cycle, and the third program's sequence is over
        seen.add(session.variant)
        outputs = cell(*map(ms.Tensor, batch))
        loss = outputs[0] if isinstance(outputs, tuple) else outputs
        assert float(loss.asnumpy()) == float(session.step(*batch).loss)
    assert len(seen) > 1
    state = {p.name: p.asnumpy() for p in cell.get_parameters()}
    reference = session.state()
    assert state.keys() == reference.keys()
    for key, value in reference.items():
        np.testing.assert_array_equal(state[key], value, err_msg=key)


def test_the_file_alone_goes_on_where_the_count_stands(exported: Exported, tmp_path: Path) -> None:
    """The position in the cycle is state of the file: saved in mid-cycle, a new file continues there."""
    program = bc.compile(bc.load(str(exported("mlp"))), "gradient-accumulation{steps=4}")
    batches = CASES["mlp"].batches(8)
    session = bc.Session(program)
    for batch in batches[:6]:
        session.step(*batch)
    program.with_values(session.state()).save(str(tmp_path / "midway.mindir"))
    for batch in batches[6:]:
        session.step(*batch)
    _, state = train_graph_cell(tmp_path / "midway.mindir", batches[6:])
    for key, value in session.state().items():
        np.testing.assert_array_equal(state[key], value, err_msg=key)


def test_a_plain_program_stays_the_graph_it_is(exported: Exported, tmp_path: Path) -> None:
    from boost_compile.ir.equal import structurally_equal

    program = bc.load(str(exported("lenet_bn")))
    program.save(str(tmp_path / "same.mindir"))
    again = bc.load(str(tmp_path / "same.mindir"))
    assert structurally_equal(program.graphs["step"], again.graphs["step"]) is None
