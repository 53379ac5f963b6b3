"""`session.cell` inside MindSpore's own training loop."""

from __future__ import annotations

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore.train import LossMonitor, Model, TimeMonitor
from mindspore.train.callback import CheckpointConfig, ModelCheckpoint

import boost_compile as bc
from tests.networks import CASES

from .programs import running_mean, samples
from .test_session import assert_same_state


def dataset(*columns: np.ndarray) -> ds.Dataset:
    """Batched rows, in their order."""
    # Rows of rank 0 must be arrays: mindspore.dataset takes no numpy scalars under numpy 2.
    rows = [tuple(np.array(column[i]) for column in columns) for i in range(len(columns[0]))]
    names = [f"column{i}" for i in range(len(columns))]
    return ds.GeneratorDataset(rows, names, shuffle=False)


@pytest.fixture(params=[ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def mode(request):
    before = ms.get_context("mode")
    ms.set_context(mode=request.param)
    yield
    ms.set_context(mode=before)


@pytest.mark.usefixtures("mode")
def test_model_trains_the_cell_with_its_callbacks(exported, tmp_path, capsys):
    program = bc.load(exported("mlp"))
    batches = CASES["mlp"].batches(6)
    data = dataset(*(np.concatenate(column) for column in zip(*batches, strict=True))).batch(4)
    reference = bc.Session(program)
    losses = [reference.step(*batch).loss for batch in batches]

    session = bc.Session(program)
    checkpoint = ModelCheckpoint("mlp", str(tmp_path), CheckpointConfig(save_checkpoint_steps=6, keep_checkpoint_max=5))
    callbacks = [LossMonitor(1), TimeMonitor(1), checkpoint]
    Model(session.cell).train(1, data, callbacks=callbacks, dataset_sink_mode=False)

    assert_same_state(session.state(), reference.state())
    printed = capsys.readouterr().out
    assert [float(line.split("loss is ")[1]) for line in printed.splitlines() if "loss is" in line] == losses
    assert "per step time" in printed
    (saved,) = tmp_path.glob("*.ckpt")
    assert set(ms.load_checkpoint(str(saved))) == set(program.state)
    resumed = bc.Session(program)
    resumed.load_state(saved)
    assert_same_state(resumed.state(), reference.state())


def test_parameters_of_the_cell_are_the_state(exported):
    program = bc.load(exported("lenet_bn"))
    session = bc.Session(program)
    assert [p.name for p in session.cell.get_parameters()] == list(program.state)
    weights = [name for name, variable in program.state.items() if variable.trainable]
    assert [p.name for p in session.cell.trainable_params()] == weights
    session.step(*CASES["lenet_bn"].batches(1)[0])
    assert_same_state({p.name: p.asnumpy() for p in session.cell.get_parameters()}, session.state())


def test_model_runs_whole_cycles_and_resumes_one(tmp_path):
    program = running_mean(3)
    data = samples(7)
    session = bc.Session(program)
    model = Model(session.cell)
    model.train(1, dataset(data[:4]), dataset_sink_mode=False)
    assert session.position == 1
    session.save(tmp_path / "x.ckpt")

    other = bc.Session(program)
    ms.load_param_into_net(other.cell, ms.load_checkpoint(str(tmp_path / "x.ckpt")))
    Model(other.cell).train(1, dataset(data[4:6]), dataset_sink_mode=False)
    assert other.position == 0
    np.testing.assert_allclose(other.state()["mean"], data[3:6].mean(0), rtol=1e-6)


def test_a_wrong_batch_in_model_is_our_error(exported):
    session = bc.Session(bc.load(exported("mlp")))
    x, y = CASES["mlp"].batch(np.random.default_rng(0), 6)
    with pytest.raises(bc.Error, match="micro-batch of 4"):
        Model(session.cell).train(1, dataset(x, y).batch(3), dataset_sink_mode=False)
