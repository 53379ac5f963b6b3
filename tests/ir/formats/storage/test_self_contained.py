"""The self-contained form: one MindIR that plain MindSpore trains, on the same trajectory as the program's own
session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.data import ZeroData

import boost_compile as bc
from tests.boundary import every_other
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


@pytest.mark.parametrize(
    ("name", "split"),
    every_other(["mlp_adam", "lenet_bn", "gpt", "two_inputs", "mlp_asgd", "branch"], ["apply", "fused"]),
)
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
    from tests.equality import structurally_equal

    program = bc.load(str(exported("lenet_bn")))
    program.save(str(tmp_path / "same.mindir"))
    again = bc.load(str(tmp_path / "same.mindir"))
    assert structurally_equal(program.graphs["step"], again.graphs["step"]) is None


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("lenet_bn", "gradient-accumulation{steps=3},overflow-check{max_skipped=7}"),
        (
            "mlp_adam",
            "gradient-accumulation{steps=2,split=fused},gradient-freeze{groups=2,type=continuous,probability=0.5}",
        ),
        ("mlp", "clip-gradients{by=value,limit=0.01}"),
    ],
)
def test_the_file_is_recognised(exported: Exported, tmp_path: Path, name: str, pipeline: str) -> None:
    program = bc.compile(bc.load(str(exported(name))), pipeline)
    path = tmp_path / "whole.mindir"
    program.save(str(path))
    read = bc.load(str(path))
    assert read.micro_batches() == program.micro_batches()
    assert (read.pipeline, read.source) == (program.pipeline, program.source)
    assert read.schedule.max_skipped == program.schedule.max_skipped
    for key, variable in read.state.items():
        assert replace(variable, data=ZeroData(0), info={}) == replace(program.state[key], data=ZeroData(0), info={})
    assert "boost_compile.program" not in read.metadata.get("user_info", {})
    batches = CASES[name].batches(5)
    whole, apart = bc.Session(read), bc.Session(program)
    for batch in batches:
        ours, theirs = whole.step(*batch), apart.step(*batch)
        assert (ours.loss, ours.ended_cycle, ours.updated) == (theirs.loss, theirs.ended_cycle, theirs.updated)
    assert whole.position == apart.position
    state = whole.state()
    for key, value in apart.state().items():
        np.testing.assert_array_equal(state[key], value, err_msg=key)
    bc.load(str(path)).save(str(tmp_path / "again.mindir"))
    assert (tmp_path / "again.mindir").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"micro_batches": 3',
            '"micro_batches": 0',
            r"note 'boost_compile.program': \$\.micro_batches: expected a whole",
        ),
        ('"micro_batches": 3', '"micro_batches": x', "not a JSON document"),
        ('"accumulation.count"', '"accumulation.other"', "count: expected"),
        ('["weight", "", true]', '["wrongs", "", true]', r"roles\..*: expected one of|roles\..*expected"),
    ],
)
def test_notes_that_are_wrong(exported: Exported, tmp_path: Path, old: str, new: str, message: str) -> None:
    program = bc.compile(bc.load(str(exported("mlp"))), "gradient-accumulation{steps=3}")
    path = tmp_path / "whole.mindir"
    program.save(str(path))
    data = path.read_bytes()
    assert old.encode() in data
    assert len(old) == len(new)
    path.write_bytes(data.replace(old.encode(), new.encode(), 1))
    with pytest.raises(bc.Error, match=rf"whole\.mindir: its {message}|{message}"):
        bc.load(str(path))
