"""`session.cell` inside MindSpore's own training loop."""

from __future__ import annotations

import logging
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore.train import LossMonitor, Model, TimeMonitor
from mindspore.train.callback import CheckpointConfig, ModelCheckpoint

import boost_compile as bc
from tests.networks import CASES
from tests.runtime.programs import running_mean, samples
from tests.runtime.training.support import assert_same_state, dataset


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


def values(result: Any) -> tuple[Any, ...]:
    return tuple(
        values(v) if isinstance(v, tuple) else v if isinstance(v, bool) else v.asnumpy().tolist() for v in result
    )


@pytest.mark.parametrize(
    ("name", "pipeline", "scales"),
    [
        ("mlp", "overflow-check", [1.0] * 4),
        ("mlp", "gradient-accumulation{steps=2},overflow-check", [1.0] * 4),
        ("mlp", "loss-scale{mode=static,init=8}", [8.0] * 4),
        (
            "mlp",
            "gradient-accumulation{steps=2,split=fused},loss-scale{mode=dynamic,init=8,window=1},overflow-check",
            [8.0, 8.0, 16.0, 16.0],
        ),
        ("mlp", "gradient-accumulation{steps=2},group-loss-scale{groups=2,init=[4,4]}", [[4.0, 4.0]] * 4),
        ("scaled_dynamic", "legalize,gradient-accumulation{steps=2}", None),
    ],
)
def test_the_cell_returns_loss_overflow_and_scale_in_every_step(exported, name, pipeline, scales):
    program = bc.compile(exported(name), pipeline)
    cell, session = bc.Session(program).cell, bc.Session(program)
    found = []
    for batch in CASES[name].batches(4):
        returned = cell(*batch)
        assert all(isinstance(value, ms.Tensor) for value in returned)  # as MindSpore's callbacks take them
        loss, overflow, scale = values(returned)
        result = session.step(*batch)
        assert (loss, overflow) == (result.loss, False)
        found.append(scale)
    if scales is None:
        scales = [float(program.state["scale_sense"].initial)] * 4
    assert found == scales


def test_the_loss_monitor_reads_it(exported, capsys):
    program = bc.compile(exported("mlp"), "gradient-accumulation{steps=2},overflow-check")
    batches = CASES["mlp"].batches(4)
    session = bc.Session(program)
    losses = [session.step(*batch).loss for batch in batches]
    data = dataset(*(np.concatenate(column) for column in zip(*batches, strict=True))).batch(4)
    Model(bc.Session(program).cell).train(1, data, callbacks=[LossMonitor(1)], dataset_sink_mode=False)
    printed = capsys.readouterr().out
    shown = [np.float32(line.split("loss is ")[1]) for line in printed.splitlines() if "loss is" in line]
    assert shown == [np.float32(loss) for loss in losses]


def test_an_overflow_shows_in_the_result_of_the_step_that_skips(exported):
    cell = bc.Session(bc.compile(exported("mlp"), "gradient-accumulation{steps=2},overflow-check")).cell
    x, y = CASES["mlp"].batches(1)[0]
    assert not values(cell(np.full_like(x, np.inf), y))[1]
    assert values(cell(x, y))[1] is True
    assert values(cell(x, y))[1] is False


def test_a_program_without_scale_or_check_returns_what_its_training_cell_does(exported):
    x, y = CASES["mlp"].batches(1)[0]
    assert bc.Session(exported("mlp")).cell(x, y).shape == ()
    assert bc.Session(bc.compile(exported("mlp"), "gradient-accumulation{steps=2}")).cell(x, y).shape == ()
    batch = CASES["accuracy"].batches(1)[0]
    plain = bc.Session(exported("accuracy")).cell(*batch)
    session = bc.Session(bc.compile(exported("accuracy"), "gradient-accumulation{steps=2},overflow-check"))
    for _ in range(2):
        loss, overflow, scale, *others = values(session.cell(*batch))
        assert (loss, overflow, scale) == (values(plain)[0], False, 1.0)
        assert others == [values(plain)[1]]  # the accuracy; what the optimizer returned is not there in every step


def test_a_cycle_that_is_pending_when_model_ends_is_reported(caplog):
    data = samples(8)
    session = bc.Session(running_mean(3))
    model = Model(session.cell)
    with caplog.at_level(logging.WARNING, "boost_compile"):
        model.train(2, dataset(data[:3]), callbacks=[LossMonitor(1)], dataset_sink_mode=False)
        assert "pending" not in caplog.text
        model.train(1, dataset(data[3:7]), dataset_sink_mode=False)
    assert caplog.text.count("1 of 3 micro-batches are pending") == caplog.text.count("pending") == 1
    assert session.flush().updated
    np.testing.assert_allclose(session.state()["mean"], data[6], rtol=1e-6)
    caplog.clear()
    model.train(1, dataset(data[:3]), dataset_sink_mode=False)
    assert "pending" not in caplog.text


def test_a_wrong_batch_in_model_is_our_error(exported):
    session = bc.Session(bc.load(exported("mlp")))
    x, y = CASES["mlp"].batch(np.random.default_rng(0), 6)
    with pytest.raises(bc.Error, match="micro-batch of 4"):
        Model(session.cell).train(1, dataset(x, y).batch(3), dataset_sink_mode=False)
