"""The training loop over arrays, .npz files and mindspore.dataset."""

from __future__ import annotations

import re
import threading

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from boost_compile.runtime.data import sources
from boost_compile.runtime.state.finite_state import is_finite
from boost_compile.runtime.training.callback import Callback
from boost_compile.runtime.training.saving import SaveEvery
from safetensors.numpy import load_file

import boost_compile as bc
from tests.exact_resume import SavedAt
from tests.networks import CASES
from tests.runtime.programs import running_mean, samples
from tests.runtime.training.support import assert_same_state, dataset


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    return CASES["mlp"].batch(np.random.default_rng(5), 22)


def session_of(exported, name: str = "mlp") -> bc.Session:
    return bc.Session(bc.load(exported(name)))


def test_every_source_gives_the_same_trajectory(exported, digits, tmp_path):
    x, y = digits
    by_hand = session_of(exported)
    losses = [by_hand.step(x[i : i + 4], y[i : i + 4]).loss for _ in range(2) for i in range(0, 20, 4)]
    np.savez(tmp_path / "ordered.npz", images=x, labels=y.astype(np.int64))
    np.savez(tmp_path / "named.npz", inputs1=y, inputs0=x)
    sources = {
        "arrays": (x, y),
        "mapping": {"images": x, "labels": y},
        "npz in order": tmp_path / "ordered.npz",
        "npz by input names": str(tmp_path / "named.npz"),
        "dataset of rows": dataset(x, y),
        "dataset of batches": dataset(x, y).batch(4),
    }
    for name, source in sources.items():
        session = session_of(exported)
        history = session.fit(source, epochs=2, shuffle=False)
        assert history.losses == losses, name
        assert [(e.number, e.samples, e.dropped, e.micro_batches) for e in history.epochs] == [
            (1, 20, 2, 5),
            (2, 20, 2, 5),
        ]
        assert history.dropped == 4
        assert_same_state(session.state(), by_hand.state())


def test_a_dataset_of_plain_labels_trains_or_is_refused_with_the_remedy(exported, digits, monkeypatch):
    """mindspore.dataset cannot read numbers that are no arrays with numpy 2, which the project does not install."""
    x, y = digits
    slices = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False)
    if np.__version__.startswith("1."):
        assert session_of(exported).fit(slices).losses == session_of(exported).fit((x, y), shuffle=False).losses

    def labels():  # says what numpy 2 says
        yield x[0], y[:1]
        raise ValueError("Unable to avoid copy while creating an array as requested.")

    monkeypatch.setattr(np, "__version__", "2.4.6")
    with pytest.raises(bc.Error, match=r"numpy 2\.4\.6 is installed: pip install 'numpy<2'"):
        session_of(exported).fit(ds.GeneratorDataset(labels, ["x", "y"]))


def test_shuffling_is_repeatable_by_seed_and_differs_between_epochs(exported, digits, tmp_path):
    np.savez(tmp_path / "x.npz", x=digits[0], y=digits[1])

    def losses(source, seed: int) -> list[float]:
        return session_of(exported).fit(source, epochs=2, seed=seed).losses

    assert losses(digits, 3) == losses(digits, 3) == losses(tmp_path / "x.npz", 3)
    assert losses(digits, 3) != losses(digits, 4)


def test_shuffling_takes_each_sample_once_an_epoch():
    seen = []

    class Data(Callback):
        def on_step(self, session, number, result):
            seen.append(session.state()["sum"].tolist())

    # With the mean held at zero by a long cycle, the sum after each epoch is the sum of the data.
    data = samples(6)
    session = bc.Session(running_mean(100))
    session.fit((data.reshape(-1),), epochs=2, seed=1, callbacks=[Data()])
    assert sum(seen[5]) == data.sum()
    assert sum(seen[11]) == 2 * data.sum()
    assert seen[0] != data[0].tolist()


def test_an_open_batch_dimension_runs_the_short_micro_batch(exported, digits):
    session = session_of(exported, "mlp_dynamic_batch")
    history = session.fit(digits, batch_size=5, shuffle=False)
    assert [(e.samples, e.dropped, e.micro_batches) for e in history.epochs] == [(22, 0, 5)]
    by_hand = session_of(exported, "mlp_dynamic_batch")
    losses = [by_hand.step(digits[0][i : i + 5], digits[1][i : i + 5]).loss for i in range(0, 22, 5)]
    assert history.losses == losses
    unbatched = session_of(exported, "mlp_dynamic_batch").fit(dataset(*digits), batch_size=5)
    assert unbatched.losses == losses


def test_cycles_run_across_epochs_and_the_short_last_one_is_flushed():
    data = samples(4)
    session = bc.Session(running_mean(3))
    history = session.fit((data.reshape(-1),), epochs=2, shuffle=False)
    assert [c.micro_batches for c in history.cycles] == [3, 3, 2]
    assert [c.number for c in history.cycles] == [1, 2, 3]
    assert history.flushed == 2
    assert session.position == 0
    np.testing.assert_allclose(session.state()["mean"], data[2:].mean(0), rtol=1e-6)
    assert history.cycles[0].loss == pytest.approx((data[:3] ** 2).sum() / 6)
    assert history.epochs[0].loss == pytest.approx(
        ((data[:3] ** 2).sum() + ((data[3] - data[:3].mean(0)) ** 2).sum()) / 8, rel=1e-6
    )


def test_an_epoch_may_end_with_a_flush():
    data = samples(5)
    session = bc.Session(running_mean(3))
    history = session.fit(
        (data.reshape(-1),), epochs=2, shuffle=False, end_of_epoch="flush", evaluate=lambda s: s.state()["mean"].copy()
    )
    assert [(c.number, c.micro_batches, c.flushed) for c in history.cycles] == [
        (1, 3, False), (2, 2, True), (3, 3, False), (4, 2, True)
    ]  # fmt: skip
    assert [c.number for c in history.short_cycles] == [2, 4]
    assert history.flushed == 2
    assert history.dropped == 0
    # The evaluation of each epoch sees the update of its last samples.
    for epoch in history.epochs:
        np.testing.assert_allclose(epoch.evaluation, data[3:].mean(0), rtol=1e-6)


@pytest.mark.parametrize("source", ["arrays", "dataset"])
def test_an_epoch_may_drop_what_does_not_fill_a_cycle(source):
    data = samples(8)
    seen = []

    class Count(Callback):
        def on_step(self, session, number, result):
            seen.append(number)

    given = (data.reshape(-1),) if source == "arrays" else dataset(data.reshape(-1)).batch(2)
    session = bc.Session(running_mean(3))
    history = session.fit(given, epochs=2, shuffle=False, end_of_epoch="drop", callbacks=[Count()])
    assert [(c.micro_batches, c.flushed) for c in history.cycles] == [(3, False)] * 4
    assert [(e.micro_batches, e.samples, e.dropped) for e in history.epochs] == [(6, 12, 4)] * 2
    assert (history.flushed, history.dropped, session.position, len(seen)) == (0, 8, 0, 12)
    np.testing.assert_allclose(session.state()["mean"], data[3:6].mean(0), rtol=1e-6)


def test_an_epoch_without_a_whole_cycle_cannot_be_dropped():
    with pytest.raises(bc.Error, match=r"no complete window of 3 micro-batches.*'carry' or 'flush'"):
        bc.Session(running_mean(3)).fit((samples(2).reshape(-1),), end_of_epoch="drop")
    with pytest.raises(bc.Error, match=r"end of epoch 'stop': give 'carry', 'flush' or 'drop'"):
        bc.Session(running_mean(3)).fit((samples(2).reshape(-1),), end_of_epoch="stop")


@pytest.mark.parametrize("end", ["carry", "flush", "drop"])
def test_training_resumes_at_any_micro_batch_with_every_end_of_an_epoch(end, tmp_path):
    rows = samples(5).reshape(-1)
    whole, saving = bc.Session(running_mean(3)), SavedAt(tmp_path, range(1, 20))
    expected = whole.fit((rows,), epochs=2, end_of_epoch=end, callbacks=[saving])
    assert len(saving.losses) == (6 if end == "drop" else 10)
    session = bc.Session(running_mean(3))  # one for all: what it did before is gone when a state is loaded
    for step in range(1, len(saving.losses) + 1):
        session.load(saving.path(step))
        evaluated = []
        history = session.fit((rows,), epochs=2, end_of_epoch=end, resume=True, evaluate=evaluated.append)
        assert_same_state(session.state(), whole.state())
        assert session.data_position == whole.data_position
        # An epoch that was saved at its last micro-batch was not evaluated then: that is left of it.
        assert [e.number for e in history.epochs] == [1, 2][(step - 1) // (len(saving.losses) // 2) :]
        assert len(evaluated) == len(history.epochs)
        done = len(expected.cycles) - len(history.cycles)
        facts = [(c.number, c.micro_batches, c.flushed, c.updated) for c in history.cycles]
        assert facts == [(c.number, c.micro_batches, c.flushed, c.updated) for c in expected.cycles[done:]]
        assert history.flushed == (0 if not facts else expected.flushed)
    session.load_state(saving.path(1))
    other = "flush" if end == "carry" else "carry"
    with pytest.raises(bc.Error, match=f"end of an epoch was {end} then and {other} now"):
        session.fit((rows,), epochs=2, end_of_epoch=other, resume=True)


def test_callbacks_and_evaluation_are_called_in_turn(exported, digits):
    calls = []

    class Record(Callback):
        def on_step(self, session, number, result):
            calls.append(("step", number, result.graph))

        def on_cycle(self, session, cycle):
            calls.append(("cycle", cycle.number))

        def on_epoch(self, session, epoch):
            calls.append(("epoch", epoch.number, epoch.evaluation))

    session = session_of(exported)
    history = session.fit(
        (digits[0][:8], digits[1][:8]),
        epochs=2,
        callbacks=[Record()],
        evaluate=lambda s: int(s.state()["global_step"].item()),
    )
    one = [("step", 1, "step"), ("cycle", 1), ("step", 2, "step"), ("cycle", 2), ("epoch", 1, 2)]
    two = [("step", 3, "step"), ("cycle", 3), ("step", 4, "step"), ("cycle", 4), ("epoch", 2, 4)]
    assert calls == one + two
    assert [e.evaluation for e in history.epochs] == [2, 4]


@pytest.mark.parametrize("source", ["arrays", "arrays read ahead", "dataset"])
def test_whoever_interrupts_training_finds_what_was_trained_on_and_no_reader(source, monkeypatch):
    readers = []

    class Leave(Callback):
        def on_step(self, session, number, result):
            readers.extend(thread for thread in threading.enumerate() if thread.name == "boost-compile-data")
            if number == 2:
                raise KeyboardInterrupt

    if source == "arrays read ahead":
        monkeypatch.setattr(sources, "AT_ONCE", 0)
    rows = samples(8).reshape(-1)
    session = bc.Session(running_mean(3))
    with pytest.raises(KeyboardInterrupt):
        session.fit(dataset(rows).batch(2) if source == "dataset" else (rows,), callbacks=[Leave()])
    assert bool(readers) == (source == "arrays read ahead")
    assert session.data_position.micro_batch == session.position == 2  # and not the three that were read
    assert not [thread for thread in threading.enumerate() if thread.name == "boost-compile-data"]


def test_callbacks_read_and_set_states_but_do_not_train(tmp_path):
    """What they set is trained on; what would spoil the count is refused, and the training could go on."""

    class Reads(Callback):
        def on_cycle(self, session, cycle):
            session.save(tmp_path / "x.ckpt")
            session.load({"mean": session.state(["mean"])["mean"]}, strict=False)

    class Trains(Callback):
        def __init__(self, use):
            self.use = use

        def on_cycle(self, session, cycle):
            self.use(session)

    data = (samples(6).reshape(-1),)
    whole, session = bc.Session(running_mean(2)), bc.Session(running_mean(2))
    losses = whole.fit(data, epochs=2).losses
    assert session.fit(data, epochs=2, callbacks=[Reads()]).losses == losses
    assert_same_state(session.state(), whole.state())
    for method, use in {
        "step": lambda session: session.step(samples(1)[0]),
        "flush": lambda session: session.flush(),
        "fit": lambda session: session.fit(data),
        "load": lambda session: session.load(tmp_path / "x.ckpt"),
        "load_state": lambda session: session.load_state({"count": np.float32(1)}, strict=False),
    }.items():
        session = bc.Session(running_mean(2))
        with pytest.raises(
            bc.Error, match=rf"^{method.partition('_')[0]} was called within fit.*when fit has returned"
        ):
            session.fit(data, epochs=2, callbacks=[Trains(use)])
        assert session.position == 0
        session.fit(data, epochs=2, resume=True)
        assert_same_state(session.state(), whole.state())


def test_a_loss_that_is_not_finite_stops_with_its_step():
    data = samples(8)
    data[2, 0] = 3e38  # its square is not finite
    rows = data.reshape(-1)
    session = bc.Session(running_mean(2))
    with pytest.raises(bc.Error, match=r"loss of step 3 is inf.*allow_nonfinite=True"):
        session.fit((rows,), shuffle=False)
    assert session.state()["updates"] == 2
    history = bc.Session(running_mean(2)).fit((rows,), shuffle=False, allow_nonfinite=True)
    assert np.isfinite(history.losses).tolist() == [True, False, False, True]


def test_an_overflow_that_the_program_reports_does_not_stop():
    data = samples(8)
    session = bc.Session(running_mean(2, scale=True))
    session.load_state({"scale": np.float32(8)}, strict=False)
    data[1] = 2e38
    history = session.fit((data[:2].reshape(-1),), shuffle=False)
    assert [(c.overflow, c.updated) for c in history.cycles] == [(True, False)]


NAMED_IN_PART = (
    r"the mapping holds 2 arrays \(inputs0, label\), graph 'step' takes 2 \(inputs0, inputs1\): only 'inputs0' has the "
    "name of an input. Name every array as its input; or none"
)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (lambda x, y: (x,), {}, "takes 2 inputs, got 1 array"),
        (lambda x, y: (x, y[:-1]), {}, "differ in their number of samples: array 1 of 2 has 22, array 2 of 2 has 21"),
        (lambda x, y: (x[:3], y[:3]), {}, "3 samples do not fill one micro-batch of 4"),
        (
            lambda x, y: (x[:, :7], y),
            {},
            r"array 1 of 2 holds 22 rows of shape \[7\], and input 'inputs0' .* of shape \[8\]",
        ),
        (lambda x, y: (x, y), {"batch_size": 5}, "micro-batches of 4, not of 5"),
        (lambda x, y: (x, y), {"epochs": 0}, "epochs 0: give a whole number of at least 1"),
        (lambda x, y: (x, y), {"epochs": "3"}, "epochs '3': give a whole number"),
        (lambda x, y: (x, y), {"epochs": 1.5}, "epochs 1.5: give a whole number"),
        (lambda x, y: (x, y), {"batch_size": "4"}, "batch size '4': give a whole number"),
        (lambda x, y: (x, y), {"seed": -1}, "seed -1: give a whole number of at least 0"),
        (lambda x, y: (x, y), {"evaluate": "accuracy"}, "evaluate 'accuracy' is no function"),
        (lambda x, y: (x, y), {"callbacks": Callback()}, r"callbacks are a list, .* callbacks=\[…\]"),
        (lambda x, y: (x, y), {"callbacks": 3}, "callbacks are a list, and not this int"),
        (lambda x, y: {"a": x, "b": y, "c": y}, {}, "3 arrays \\(a, b, c\\)"),
        (lambda x, y: {"inputs0": x, "label": y}, {}, NAMED_IN_PART),
        (lambda x, y: [(x, y), (x, y)], {}, "array 1 of 2, a tuple, is no array: .*one array for each input"),
        (lambda x, y: dataset(x), {}, "1 column "),
        (lambda x, y: dataset(x, y).batch(3), {}, "micro-batch of 4"),
        (lambda x, y: dataset(x[:3], y[:3]), {}, "no complete micro-batch"),
        (lambda x, y: "missing.npz", {}, "missing.npz: no such file"),
        (lambda x, y: "data.csv", {}, r"\.npz"),
        (lambda x, y: 7, {}, "cannot train on a int"),
        (lambda x, y: (x, y), {"callbacks": [ms.train.LossMonitor()]}, "LossMonitor is no boost_compile callback"),
    ],
)
def test_bad_data_and_options_are_clear_errors(exported, digits, data, options, message):
    with pytest.raises(bc.Error, match=message):
        session_of(exported).fit(data(*digits), shuffle=False, **options)


def test_arrays_named_in_part_are_not_fed_by_their_order(exported, digits, tmp_path):
    session = bc.Session(bc.load(exported("two_inputs")))
    names = [value.name for value in session.consumer.inputs]
    rows = CASES["two_inputs"].batch(np.random.default_rng(0), 8)
    swapped = {names[1]: rows[1], names[0]: rows[0], "label": rows[2]}
    np.savez(tmp_path / "swapped.npz", **swapped)
    before = session.state()
    for use in (session.fit, session.evaluate):
        for data in (swapped, tmp_path / "swapped.npz"):
            with pytest.raises(bc.Error, match=f"only '{names[0]}' and '{names[1]}' have the name of an input"):
                use(data)
    assert_same_state(session.state(), before)
    with pytest.raises(bc.Error, match=r"got a dict\. Pass the arrays themselves"):
        session_of(exported).predict({"inputs0": digits[0]})


def test_an_open_batch_dimension_needs_a_batch_size(exported, digits):
    with pytest.raises(bc.Error, match="batch_size=…"):
        session_of(exported, "mlp_dynamic_batch").fit(digits)


@pytest.mark.parametrize("width", [80, 120])
def test_the_bar_stands_on_stderr_and_only_when_wanted(width, exported, digits, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    session_of(exported).fit(digits)
    assert capfd.readouterr().err == ""
    session_of(exported).fit(digits, epochs=12, progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    bar = shown.err.splitlines()[-1]
    assert len(bar) <= width
    assert re.search(r"^epoch 12/12 .* *60/60 micro-batches  loss [\d.]+  [\d,]+ samples/s", bar), bar
    assert re.search(r" \d:\d\d:\d\d *$", bar), "no number is cut off"
    assert ("window 60" in bar) == (width > 80)


NAN = np.float32(np.nan)


def test_nan_in_the_data_is_named_before_anything_is_trained(exported, digits, tmp_path, caplog):
    x, y = digits[0].copy(), digits[1]
    x[7, 3] = x[9, 0] = np.inf
    x[9, 1] = NAN
    np.savez(tmp_path / "bad.npz", pictures=x, labels=y)
    session = session_of(exported)
    before = session.state()
    with pytest.raises(bc.Error, match=r"bad\.npz: array 'pictures': row 9 holds NaN \(2 of 22 rows are not finite\)"):
        session.fit(tmp_path / "bad.npz", shuffle=False)
    assert_same_state(session.state(), before)
    with pytest.raises(bc.Error, match=r"micro-batch 3 of epoch 1, column 'column0'.*: row 1 holds NaN"):
        session_of(exported).fit(dataset(np.where(np.isinf(x), 0, x), y), shuffle=False)
    x[9, 1] = 0
    with pytest.raises(bc.Error, match=r"after optimizer step|loss of step"):
        session.fit((x, y), shuffle=False)
    assert "array 1 of 2: row 7 holds an infinity (2 of 22 rows are not finite), for input 'inputs0'" in caplog.text
    skipping = bc.Session(bc.compile(bc.load(exported("mlp")), "overflow-check"))
    x[9, 1] = NAN
    history = skipping.fit((x, y), shuffle=False)
    assert [c.updated for c in history.cycles] == [True, False, False, True, True]
    assert all(np.isfinite(v).all() for v in skipping.state().values())


class Spoil(Callback):
    """What one bad sample does: the loss of a network with ReLU stays finite."""

    def __init__(self, name: str, step: int):
        self.name, self.step = name, step

    def on_step(self, session, number, result):
        if number == self.step:
            value = session.state()[self.name]
            value.reshape(-1)[0] = NAN
            session.load_state({self.name: value}, strict=False)


@pytest.mark.parametrize(
    ("network", "name", "role"), [("mlp", "hidden.bias", "weight"), ("lenet_bn", "bn1.moving_variance", "statistic")]
)
def test_state_that_is_no_longer_finite_ends_the_epoch_and_is_not_saved(
    network, name, role, exported, tmp_path, caplog
):
    batches = CASES[network].batches(3)
    data = tuple(np.concatenate(a) for a in zip(*batches, strict=True))
    session = session_of(exported, network)
    name = next(n for n in session.state() if n.endswith(name.rpartition(".")[2])) if role == "statistic" else name
    path = tmp_path / "x.safetensors"
    message = f"{role} '{name}' is not finite after optimizer step 2: .*After step 1 all were finite"
    with pytest.raises(bc.Error, match=message):
        session.fit(data, shuffle=False, callbacks=[Spoil(name, 2), SaveEvery(path, 1)])
    kept = load_file(path)
    assert np.isfinite(kept[name]).all()
    other = session_of(exported, network)
    with pytest.raises(bc.Error, match=r"is not finite after optimizer step 3: .*After step 0 all were finite"):
        other.fit(data, shuffle=False, callbacks=[Spoil(name, 2)])
    caplog.clear()
    history = session_of(exported, network).fit(data, epochs=2, callbacks=[Spoil(name, 2)], allow_nonfinite=True)
    assert len(history.cycles) == 6
    (warning,) = caplog.messages  # once, not every epoch
    assert warning.startswith(f"{role} '{name}' is not finite after optimizer step 3: ")


def test_finite_arrays_whose_sum_is_not():
    assert is_finite(np.full(9, 3e38, np.float32))
    assert is_finite(np.full(70000, 60000, np.float16))
    assert is_finite(np.zeros((0, 3), np.float32))
    for bad in (np.inf, -np.inf, np.nan):
        for dtype in (np.float16, np.float32, np.float64):
            array = np.full((300, 70), 1e4, dtype)
            array[299, 3] = bad
            for view in (array, array.T, array[:, ::3]):
                assert not is_finite(view)
            array[0, 0] = -np.inf
            assert not is_finite(array)
