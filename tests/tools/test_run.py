"""boost-run: trains from files, says how it went, keeps state."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.run import command
from safetensors.numpy import load_file, save_file

import boost_compile as bc

from .support import Shell, assert_one_error, shell

Run = Callable[..., Shell]


@pytest.fixture
def run_(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *arguments: shell(capsys, command, *arguments)


@pytest.fixture
def data(here: Path) -> str:
    """38 samples of four classes that a line separates: nine micro-batches of four and two samples over."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 38).astype(np.int32)
    images = np.eye(4, 8, dtype=np.float32)[labels] * 3 + rng.standard_normal((38, 8)).astype(np.float32) * 0.1
    np.savez(here / "data.npz", images, labels)
    return "data.npz"


@pytest.fixture
def program(here: Path, capsys: pytest.CaptureFixture[str], exported: Callable[[str], Path]) -> str:
    """An MLP that accumulates over two micro-batches of four."""
    done = shell(capsys, compile_command, exported("mlp"), "--accumulate", "2", "-q", "-o", "mlp.boost")
    assert done.code == 0, done.err
    return "mlp.boost"


def test_training_a_program(program: str, data: str, run_: Run) -> None:
    done = run_(program, "--data", data, "--epochs", "8", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert set(document) == {
        "program", "data", "device", "ranks", "epochs", "cycles", "losses", "skipped_updates", "flushed",
        "short_steps", "pending", "saved", "saved_weights", "saved_adapter", "weights", "restarts",
        "findings", "logs",
    }  # fmt: skip
    epochs = document["epochs"]
    assert [e["number"] for e in epochs] == list(range(1, 9))
    assert {(e["micro_batches"], e["samples"], e["dropped"]) for e in epochs} == {(9, 36, 2)}
    # 8 times 9 micro-batches, two a cycle.
    assert (document["cycles"], document["flushed"], document["skipped_updates"]) == (36, 0, 0)
    assert epochs[-1]["loss"] < 0.5 * epochs[0]["loss"]


def test_a_file_trains_as_it_is(data: str, run_: Run, exported: Callable[[str], Path]) -> None:
    done = run_(exported("mlp"), "--data", data, "--json")
    assert done.code == 0, done.err
    assert done.document["cycles"] == 9


def test_a_short_last_cycle_is_said(program: str, data: str, run_: Run) -> None:
    done = run_(program, "--data", data)
    assert done.code == 0, done.err
    assert "5 optimizer steps; the last with 1 micro-batch only; 2 samples left out" in done.out


def test_the_seed_decides(program: str, data: str, run_: Run) -> None:
    losses = [run_(program, "--data", data, "--seed", seed, "--json").document["losses"] for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_state_is_saved_and_loaded(program: str, data: str, here: Path, run_: Run) -> None:
    whole = run_(program, "--data", data, "--no-shuffle", "--epochs", "2", "--json").document["losses"]
    # Nine micro-batches leave a half cycle that each run flushes, so only the first four full cycles compare.
    first = run_(program, "--data", data, "--no-shuffle", "--save", "half.safetensors", "--json")
    assert first.document["saved"] == "half.safetensors"
    assert first.document["losses"][:4] == whole[:4]
    second = run_(program, "--data", data, "--no-shuffle", "--load", "half.safetensors", "--json")
    assert second.document["losses"][0] < 0.9 * whole[0]


def test_training_goes_on_where_it_was_saved(program: str, data: str, here: Path, run_: Run) -> None:
    options = (program, "--data", data, "--epochs", "3", "--json")
    whole = run_(*options, "--save", "whole.safetensors", "--save-every", "4").document
    # 27 micro-batches make 13 cycles and one short one: the last state that was saved on the way is that of cycle 12.
    two = run_(program, "--data", data, "--epochs", "2", "--json", "--save", "two.ckpt", "--save-every", "4")
    assert two.document["cycles"] == 9
    (here / "part.py").write_text(
        "import shutil\n\ndef copy(session):\n"
        "    shutil.copy('again.safetensors', f'{session.data_position.epoch}.safetensors')\n"
    )
    run_(*options, "--save", "again.safetensors", "--save-every", "4", "--eval", "part.py:copy")
    for epoch, saved in ((1, 4), (2, 8)):
        rest = run_(*options, "--resume", f"{epoch}.safetensors", "--save", "resumed.safetensors").document
        assert rest["losses"] == whole["losses"][saved:]
        assert (here / "resumed.safetensors").read_bytes() == (here / "whole.safetensors").read_bytes()
    done = run_(program, "--data", data, "--epochs", "2", "--resume", "two.ckpt")
    assert (done.code, done.out) == (
        0,
        "Nothing was left to train: --epochs says up to which epoch.\n0 optimizer steps.\n",
    )


def test_what_cannot_be_resumed(program: str, data: str, here: Path, run_: Run) -> None:
    assert run_(program, "--data", data, "--save", "saved.safetensors").code == 0
    other = run_(program, "--data", data, "--seed", "1", "--resume", "saved.safetensors")
    assert_one_error(other, "boost-run", "the seed of the order of samples was 0 then and 1 now")
    state = load_file(here / "saved.safetensors")
    save_file(state, here / "plain.safetensors")
    plain = run_(program, "--data", data, "--resume", "plain.safetensors")
    assert_one_error(plain, "boost-run", "nothing says where in the data")


def test_evaluation(program: str, data: str, here: Path, run_: Run) -> None:
    (here / "check.py").write_text(
        "def norm(session):\n    return float(abs(session.state()['hidden.weight']).sum())\n"
    )
    done = run_(program, "--data", data, "--epochs", "2", "--eval", "check.py:norm", "--json")
    first, second = (e["evaluation"] for e in done.document["epochs"])
    assert first > 0
    assert first != second


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--data", "missing.npz"), ("missing.npz: no such file",)),
        (("--data", "data.npz", "--load", "missing.ckpt"), ("missing.ckpt: no such file",)),
        (("--data", "data.npz", "--save", "missing/out.ckpt"), ("no directory 'missing'",)),
        (("--data", "data.npz", "--eval", "check.py"), ("write FILE.py:FUNCTION, or FILE.npz",)),
        (("--data", "data.npz", "--val", "missing.npz"), ("missing.npz: no such file",)),
        (("--data", "data.npz", "--val", "swapped.npz"), ("swapped.npz: array 'arr_0' holds 38 rows of shape []",)),
        (("--data", "data.npz", "--val", "data.npz", "--val-split", "0.1"), ("--val and --val-split exclude",)),
        (("--data", "data.npz", "--val-split", "0.001"), ("--val-split 0.001 of 38 samples leaves nothing",)),
        (("--data", "data.npz", "--metric", "accuracy"), ("--metric and --label need data",)),
        (("--data", "data.npz", "--val", "data.npz", "--label", "inputs7"), ("no input is called 'inputs7'",)),
        (("--eval", "data.npz", "--save", "x.ckpt"), ("--save is for training",)),
        (("--data", "data.npz", "--set", "learning_rate"), ("write NAME=VALUE",)),
        (("--data", "data.npz", "--set", "learning_rat=1"), ("no hyperparameter", "did you mean 'learning_rate'?")),
        (("--data", "data.npz", "--set", "hidden.bias=1"), ("'hidden.bias' is a weight",)),
        (("--data", "data.npz", "--set", "global_step=1.5"), ("'global_step' takes whole numbers",)),
        (("--data", "data.npz", "--eval", "check.py:norm"), ("check.py: no such file",)),
        (("--data", "data.npz", "--eval", "broken.py:norm"), ("broken.py", "ZeroDivisionError")),
        (("--data", "data.npz", "--eval", "empty.py:norm"), ("defines no function 'norm'",)),
        (("--data", "data.npz", "--eval", "failing.py:norm"), ("norm failed: ZeroDivisionError: division by zero",)),
        (("--data", "data.npz", "--epochs", "0"), ("--epochs",)),
        (("--data", "data.npz", "--device", "TPU"), ("--device",)),
        (("--data", "text.npz"), ("text.npz",)),
        (
            ("--data", "swapped.npz"),
            ("swapped.npz: array 'arr_0' holds 38 rows of shape []", "'inputs0' of graph", "It fits input 'inputs1'"),
        ),
        (("--data", "part.npz"), ("part.npz holds 2 arrays (inputs1, images)", "only 'inputs1' has the name of")),
        (("--data", "wide.npz"), ("wide.npz: array 'arr_0': input 'inputs0'", "takes float32, got float64")),
        (("--data", "nan.npz"), ("nan.npz: array 'arr_0': row 20 holds NaN (1 of 38 rows", "--check-overflow")),
        (("--data", "data.npz", "--partial"), ("--partial says how to --load",)),
        (("--data", "data.npz", "--load", "data.npz"), ("holds 'arr_0'", "--load … --partial takes what both have")),
        (
            ("--data", "data.npz", "--resume", "data.npz"),
            ("holds 'arr_0'", "--resume take a state of the same program"),
        ),
        (("--data", "data.npz", "--load", "data.npz", "--partial"), ("data.npz holds nothing of the program",)),
        (("--data", "data.npz", "--save", "state.txt"), ("state.txt: no state file by its name",)),
        ((), ("--data",)),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], fragments: tuple[str, ...], program: str, data: str, here: Path, run_: Run
) -> None:
    (here / "broken.py").write_text("1 / 0\n")
    (here / "empty.py").write_text("")
    (here / "failing.py").write_text("def norm(session):\n    return 1 / 0\n")
    (here / "text.npz").write_text("no archive")
    arrays = np.load(here / data)
    np.savez(here / "swapped.npz", arrays["arr_1"], arrays["arr_0"])
    np.savez(here / "part.npz", inputs1=arrays["arr_1"], images=arrays["arr_0"])
    np.savez(here / "wide.npz", arrays["arr_0"].astype(np.float64), arrays["arr_1"])
    spoiled = arrays["arr_0"].copy()
    spoiled[20, 1] = np.nan
    np.savez(here / "nan.npz", spoiled, arrays["arr_1"])
    before = set(here.rglob("*"))
    assert_one_error(run_(program, *arguments), "boost-run", *fragments)
    assert {p for p in here.rglob("*") if "__pycache__" not in p.parts} <= before


@pytest.mark.mindspore
def test_a_graph_without_an_optimizer_is_refused_with_the_remedies(here: Path, data: str, run_: Run) -> None:
    import mindspore as ms

    from tests.networks import CASES

    inputs = ms.Tensor(CASES["mlp"].batches(1)[0][0])
    ms.export(CASES["mlp"].network(), inputs, file_name=str(here / "forward"), file_format="MINDIR")
    both = ("is a forward graph", "nn.TrainOneStepCell", "boost-compile --loss softmax-cross-entropy --optimizer")
    assert_one_error(run_("forward.mindir", "--data", data), "boost-run", *both)
    done = run_("data.npz", "--data", data)
    assert_one_error(done, "boost-run", "data.npz: not a MindIR; it seems to be a zip archive")
    ms.save_checkpoint([{"name": "w", "data": ms.Tensor([1.0])}], str(here / "w.ckpt"))
    done = run_("w.ckpt", "--data", data)
    assert_one_error(done, "boost-run", "it seems to be a MindSpore checkpoint")
    assert done.err.count("export the training cell again") == 1


def test_a_part_of_a_state_is_loaded_and_the_rest_named(program: str, data: str, here: Path, run_: Run) -> None:
    assert run_(program, "--data", data, "--epochs", "2", "--save", "whole.safetensors").code == 0
    state = load_file(here / "whole.safetensors")
    part = {name: value for name, value in state.items() if name.startswith("hidden.")}
    save_file(
        {**part, "output.weight": np.ones((2, 2), np.float32), "other": np.ones(3, np.float32)}, here / "w.safetensors"
    )
    done = run_(program, "--data", data, "--load", "w.safetensors", "--partial", "--save", "tuned.safetensors", "-q")
    assert done.code == 0, done.err
    assert f"w.safetensors: {len(part)} of the program's" in done.err
    assert "1 kept their values, of another shape in the file: output.weight [2, 2], not [4, 16]" in done.err
    assert "1 of the file are no states of the program: other" in done.err
    assert "no weight" not in done.err
    rest = {n: v for n, v in state.items() if not n.startswith(("hidden.", "output."))}
    save_file(rest, here / "rest.safetensors")
    done = run_(program, "--data", data, "--load", "rest.safetensors", "--partial", "-q")
    assert f"{len(rest)} of the program's {len(state)} states were loaded, and no weight is among them." in done.err
    done = run_(program, "--data", data, "--load", program)
    assert_one_error(done, "boost-run", f"{program}: a file is expected, and this is a folder")


def test_metrics_of_data_that_is_not_trained_on(program: str, data: str, here: Path, run_: Run) -> None:
    asked = ("--metric", "accuracy", "--metric", "loss", "--metric", "F1")
    options = ("--epochs", "2", "--seed", "3", "--json", *asked)
    done = run_(program, "--data", data, "--val-split", "0.25", "--save", "w.ckpt", *options)
    assert done.code == 0, done.err
    assert re.search(r"epoch 2/2 .*  val_accuracy [\d.]+, val_loss [\d.]+, val_F1 [\d.]+$", done.err, re.M)
    epochs = done.document["epochs"]
    assert [e["samples"] for e in epochs] == [28, 28]  # of 28: ten are held out
    arrays = np.load(here / data)
    held = np.sort(np.random.default_rng((3, 38)).permutation(38)[:10])
    session = bc.Session(bc.load(here / program))
    session.load_state(here / "w.ckpt")
    predicted = np.concatenate([session.predict(arrays["arr_0"][held][i : i + 4]) for i in (0, 4, 8)])
    labels = arrays["arr_1"][held]
    shifted = predicted - predicted.max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(10), labels]
    assert epochs[-1]["evaluation"]["val_accuracy"] == pytest.approx((predicted.argmax(1) == labels).mean())
    assert epochs[-1]["evaluation"]["val_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    in_python = session.evaluate((arrays["arr_0"][held], labels), "accuracy")
    assert in_python == {"accuracy": pytest.approx(epochs[-1]["evaluation"]["val_accuracy"])}
    np.savez(here / "held.npz", labels=labels, inputs0=arrays["arr_0"][held], inputs1=labels)
    np.savez(here / "held.npz", inputs1=labels, inputs0=arrays["arr_0"][held])
    alone = run_(program, "--eval", "held.npz", "--load", "w.ckpt", "--json", *asked).document
    assert alone["samples"] == 10
    assert {f"val_{k}": v for k, v in alone["metrics"].items()} == epochs[-1]["evaluation"]
    shown = run_(program, "--eval", "held.npz", "--load", "w.ckpt", "--metric", "accuracy")
    assert re.search(r"accuracy +[\d.]+ *\n", shown.out), shown.out
    (here / "check.py").write_text("def one(session):\n    return 1\n")
    both = run_(
        program, "--data", data, "--val", "held.npz", "--metric", "mae", "--eval", "check.py:one", "--label", "inputs1"
    )
    assert_one_error(
        both, "boost-run", "metric 'mae' cannot judge predictions of shape [4, 4] by the label 'inputs1' of shape [4]"
    )
    both = run_(program, "--data", data, "--val", "held.npz", "--eval", "check.py:one")
    assert re.fullmatch(r"epoch 1/1  .*  val_loss [\d.]+, one 1\n", both.err), both.err


def test_hyperparameters_are_set_and_epochs_end_as_asked(program: str, data: str, here: Path, run_: Run) -> None:
    end = ("--data", data, "--end-of-epoch", "flush", "--epochs", "2")
    still = run_(program, *end, "--set", "learning_rate=0", "--save", "w.safetensors", "--json")
    assert still.code == 0, still.err
    state = load_file(here / "w.safetensors")
    before = bc.Session(bc.load(here / program)).state()
    np.testing.assert_array_equal(state["hidden.weight"], before["hidden.weight"])
    assert float(state["learning_rate"]) == 0
    assert still.document["epochs"][0]["rates"] == [0]
    assert (still.document["cycles"], still.document["short_steps"]) == (10, 2)
    dropped = run_(program, "--data", data, "--end-of-epoch", "drop", "--epochs", "2", "--json").document
    assert (dropped["cycles"], dropped["epochs"][0]["dropped"]) == (8, 6)
    flushed = run_(program, *end)
    assert "10 optimizer steps; 2 of them with fewer micro-batches than a window has" in flushed.out


def test_a_self_contained_file_counts_its_optimizer_steps(
    program: str, data: str, here: Path, run_: Run, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    assert shell(capsys, compile_command, program, "--emit", "mindir", "-o", "whole.mindir", "-q").code == 0
    options = ("--data", data, "--epochs", "2", "--json", "--save")
    whole, apart = (run_(p, *options, f"{p}.ckpt").document for p in ("whole.mindir", program))
    assert (whole["cycles"], whole["losses"]) == (9, apart["losses"])
    half = run_("whole.mindir", "--data", data, "--save", "half.ckpt")
    assert "4 optimizer steps; 1 micro-batch of the next one pending" in half.out
    assert "1 of 2 micro-batches are pending" in caplog.text
    rest = run_("whole.mindir", *options, "rest.ckpt", "--resume", "half.ckpt").document
    assert rest["losses"][1:] == whole["losses"][5:]
    early = run_("whole.mindir", "--data", data, "--end-of-epoch", "flush")
    assert_one_error(early, "boost-run", "no graph that ends a window early", "choose 'carry' or 'drop'")


def test_a_spoiled_weight_ends_the_training_and_is_not_saved(
    program: str, data: str, here: Path, run_: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Through a function that does what one bad sample may do: the loss stays finite, since ReLU makes zero of NaN."""
    (here / "spoil.py").write_text(
        "import numpy as np\ndef spoil(session):\n"
        "    bias = session.state()['hidden.bias']\n    bias[:3] = np.nan\n"
        "    session.load_state({'hidden.bias': bias}, strict=False)\n"
    )
    spoiled = ("--data", data, "--epochs", "3", "--eval", "spoil.py:spoil", "-q")
    message = r"weight 'hidden\.bias' is not finite after optimizer step \d+: \d+ of 16 values are NaN or infinite"
    for saving in (("--save-every", "3"), ()):
        done = run_(program, *spoiled, "--save", "kept.safetensors", *saving)
        assert_one_error(done, "boost-run", "boost-compile --check-overflow", "boost-run --allow-nonfinite")
        assert re.search(message, done.err)
        assert "what was saved before stays" in done.err
        if saving:
            kept = load_file(here / "kept.safetensors")
            assert all(np.isfinite(v).all() for v in kept.values() if v.dtype.kind == "f")
            for path in here.glob("kept.*"):
                path.unlink()
        else:
            assert not list(here.glob("kept.*"))
    with np.load(here / data) as arrays:
        rows = {name: arrays[name].copy() for name in arrays.files}
    rows["arr_0"][20, 1] = np.nan
    np.savez(here / "nan.npz", **rows)
    caplog.clear()
    done = run_(program, "--data", "nan.npz", *spoiled[2:], "--allow-nonfinite", "--val-split", "0.1")
    assert done.code == 0, done.err
    first, second = caplog.messages
    assert first.startswith("nan.npz: array 'arr_0': row 20 holds NaN (1 of 38 rows"), (
        "of the file, not of a part of it"
    )
    assert "is not finite after optimizer step" in second
    assert "Training goes on, as was asked for" in second, "once, not every epoch"


@pytest.mark.mindspore
def test_a_forward_graph_is_evaluated_with_labels_beside_its_inputs(data: str, here: Path, run_: Run) -> None:
    import mindspore as ms

    from tests.networks import CASES

    inputs = ms.Tensor(CASES["mlp"].batches(1)[0][0])
    ms.export(CASES["mlp"].network(), inputs, file_name=str(here / "forward"), file_format="MINDIR")
    done = run_("forward.mindir", "--eval", data, "--metric", "accuracy", "--json")
    assert done.code == 0, done.err
    session, arrays = bc.Session(bc.load(here / "forward.mindir")), np.load(here / data)
    predicted = np.concatenate([session.predict(arrays["arr_0"][i : i + 4]) for i in range(0, 38, 4)])
    expected = float((predicted.argmax(1) == arrays["arr_1"]).mean())
    assert done.document["metrics"] == {"accuracy": pytest.approx(expected)}
    lacking = run_("forward.mindir", "--eval", data)
    assert_one_error(lacking, "boost-run", "no loss of its own, so give metrics other than 'loss'")


def test_a_log_grows_line_by_line(program: str, data: str, run_: Run) -> None:
    done = run_(program, "--data", data, "--epochs", "2")
    first, second = done.err.splitlines()
    assert re.fullmatch(r"epoch 1/2  loss [\d.]+  rate 0\.1  [\d,]+ samples/s  4 steps", first)
    assert re.fullmatch(r"epoch 2/2  loss [\d.]+  rate 0\.1  [\d,]+ samples/s  5 steps", second)
    assert done.out == "9 optimizer steps; 4 samples left out, they did not fill a micro-batch.\n"  # no epoch twice
    quiet = run_(program, "--data", data, "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    quiet = run_(program, "--data", data, "-q", "--json")
    assert quiet.err == ""
    assert quiet.document["epochs"][0]["rates"] == pytest.approx([0.1])


def test_ranks_that_adasum_cannot_pair(
    here: Path, data: str, run_: Run, capsys: pytest.CaptureFixture[str], exported: Callable[[str], Path]
) -> None:
    """Said before any rank starts."""
    done = shell(
        capsys, compile_command, exported("mlp"), "--passes", "adasum{devices_per_group=2}", "-q", "-o", "pairs.boost"
    )
    assert done.code == 0, done.err
    done = run_("pairs.boost", "--data", data, "--ranks", "6")
    assert_one_error(done, "boost-run", "6 ranks are 3 groups: start 4 or 8 ranks")
    assert "rank 0 of" not in done.err
