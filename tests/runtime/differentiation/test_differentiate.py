"""Forward graphs made training programs: they train as the cell that was written natively does, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from boost_compile.ir.core.errors import Error, OptionError, PassError
from boost_compile.ir.core.spec import parse_spec
from boost_compile.runtime.differentiation.catalogue import LOSSES, OPTIMIZERS, parameters_of
from boost_compile.tools.compile import command
from boost_compile.tools.inspect import command as inspect
from mindspore import nn

import boost_compile as bc
from tests.compare import assert_equal
from tests.forward import Probabilities, export, with_loss, without_loss
from tests.native import state_of, train_steps
from tests.networks import CASES, Batch
from tests.networks.case import seed_everything
from tests.tools.support import assert_one_error, shell

CROSS_ENTROPY = "softmax-cross-entropy"
NO_KERNEL = frozenset({"soft-margin", "multilabel-margin", "lamb"})
"""Losses and optimizers that MindSpore exports, but has no CPU kernel for."""


def trained(program: bc.Program, batches: Sequence[Batch]) -> tuple[list[float], dict[str, np.ndarray]]:
    session = bc.Session(program, device="CPU")
    return [float(session.step(*batch).loss) for batch in batches], session.state()


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("lenet_bn", "momentum{lr=0.1,momentum=0.9}"),
        ("loop", "momentum{lr=0.1,momentum=0.9}"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("branch", "momentum{lr=0.1,momentum=0.9}"),
                ("branch_state", "momentum{lr=0.1,momentum=0.9}"),
                ("branch_in_loop", "momentum{lr=0.1,momentum=0.9}"),
                ("loop_weights", "momentum{lr=0.1,momentum=0.9}"),
                ("hidden_state", "momentum{lr=0.1,momentum=0.9}"),
                ("two_inputs", "momentum{lr=0.1,momentum=0.9}"),
                ("shared_weights", "momentum{lr=0.1,momentum=0.9}"),
                ("experts", "momentum{lr=0.1,momentum=0.9}"),
                ("lookup", "lazy-adam{lr=0.01}"),
                ("lenet_mixed", "momentum{lr=0.1,momentum=0.9}"),
                ("dropout", "adam{lr=0.01}"),
                ("lstm", "adam{lr=0.01}"),
                ("resnet18", "momentum{lr=0.01,momentum=0.9}"),
                ("mobilenet_v2_dropout", "momentum{lr=0.01,momentum=0.9}"),
                ("mobilenet_v2_rmsprop", "rmsprop{lr=0.001}"),
                ("gpt", "adam-weight-decay{lr=0.001,weight_decay=0.01}"),
                ("gpt_tied", "adam-weight-decay{lr=0.001,weight_decay=0.01}"),
                ("vit", "adam-weight-decay{lr=0.001,weight_decay=0.01}"),
            )
        ),
    ],
)
def test_it_trains_as_the_native_cell_does(name: str, optimizer: str, tmp_path: Path) -> None:
    program = bc.differentiate(bc.load(with_loss(name, tmp_path)), optimizer)
    batches = CASES[name].batches(3)
    losses, state = trained(program, batches)
    native_losses, native = train_steps(name, batches)
    assert losses == native_losses
    assert_equal(state, native)


def network_of_mlp(probabilities: bool = False) -> nn.Cell:
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    seed_everything()
    network = CASES["mlp"].network()
    return Probabilities(network) if probabilities else network


def native_mlp(
    loss: nn.Cell, make, batches: Sequence[Batch], frozen: Sequence[str] = (), probabilities: bool = False
) -> dict[str, np.ndarray]:
    network = network_of_mlp(probabilities)
    for parameter in network.get_parameters():
        parameter.requires_grad = parameter.name not in frozen
    step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), make(network.trainable_params())).set_train()
    for batch in batches:
        step(*map(ms.Tensor, batch))
    return state_of(step)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without_loss("mlp", tmp_path_factory.mktemp("mlp"), training=True)


def test_a_loss_is_added_and_weights_are_frozen(mlp: Path) -> None:
    made = bc.differentiate(
        bc.load(mlp), "adam{lr=0.01,weight_decay=0.1}", CROSS_ENTROPY, train=["*.weight"], freeze=["out*.weight"]
    )
    names = list(made.state)
    frozen = [n for n in names if n in bc.load(mlp).state and not made.state[n].trainable]
    assert frozen
    assert all(n.endswith(".bias") or n.startswith("out") for n in frozen)
    assert [m.site for m in made.reports[-1].misses] == frozen
    assert "a forward file holds no bprop" in made.reports[-1].statistics["derivative"]
    batches = CASES["mlp"].batches(2)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    native = native_mlp(loss, lambda p: nn.Adam(p, 0.01, weight_decay=0.1), batches, frozen)
    assert_equal(trained(made, batches)[1], native)


def test_training_mode_makes_batch_norms_learn_their_statistics(tmp_path: Path) -> None:
    program = bc.load(without_loss("lenet_bn", tmp_path, training=False))
    optimizer = "momentum{lr=0.1,momentum=0.9}"
    made = bc.differentiate(program, optimizer, CROSS_ENTROPY, training_mode=True)
    batches = CASES["lenet_bn"].batches(2)
    assert_equal(trained(made, batches)[1], train_steps("lenet_bn", batches)[1])
    resting = bc.differentiate(program, optimizer, CROSS_ENTROPY)
    assert sum("inference mode" in m.reason for m in resting.reports[-1].misses) == 2
    state = trained(resting, batches)[1]
    assert_equal({"mean": state["bn1.moving_mean"]}, {"mean": program.state["bn1.moving_mean"].initial})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adm"}, "did you mean 'adam'"),
        ({"optimizer": "adam{lr}"}, "expected '='"),
        ({"optimizer": "adam{lr=1"}, "or '}'"),
        ({"optimizer": "adam{lr=0.1,foo=2}"}, "no option 'foo'"),
        ({"optimizer": "momentum{lr=0.1}"}, "needs option momentum"),
        ({"optimizer": "adam{lr=-1.0}"}, "learning rate"),
        ({"loss": "sofmax"}, "no loss is called"),
        ({"loss": "mse{foo=1}"}, "no option 'foo'"),
        ({"loss": "mse{reduction=some}"}, "loss 'mse'"),
        ({"loss": None}, "which is no loss"),
        ({"train": ["nothing*"]}, "matches no state"),
        ({"freeze": ["*"]}, "no state to train"),
    ],
)
def test_what_cannot_be_done_is_said(mlp: Path, options: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        bc.differentiate(bc.load(mlp), **{"optimizer": "adam", "loss": CROSS_ENTROPY, **options})


def test_a_training_graph_is_refused(exported) -> None:
    source = bc.load(exported("mlp"))
    for program in (source, bc.compile(source, "gradient-accumulation{steps=2}")):
        with pytest.raises(PassError, match="training graph already"):
            bc.differentiate(program, "adam")


def test_a_graph_that_returns_its_loss_takes_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, asked = with_loss("mlp", tmp_path), ("--optimizer", "adam", "-o", tmp_path / "mlp.boost")
    done = shell(capsys, command, graph, "--loss", "mse", *asked)
    assert_one_error(done, "boost-compile", "returns one number (float32[]), which is a loss", "without --loss takes")
    assert not (tmp_path / "mlp.boost").exists()
    with pytest.raises(PassError, match="Leave out loss"):
        bc.differentiate(bc.load(graph), "adam", "mse")
    assert shell(capsys, command, graph, *asked).code == 0


def test_batch_norms_that_rest_are_told_as_of_a_forward_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no training cell that could be exported again."""
    made = tmp_path / "made.boost"
    asked = (without_loss("lenet_bn", tmp_path, training=False), "--loss", CROSS_ENTROPY, "--optimizer", "adam")
    done = shell(capsys, command, *asked, "-o", made)
    assert done.code == 0, done.err
    (warning,) = (line for line in done.err.splitlines() if line.startswith("Warning"))
    assert "statistics are never learnt. Fine-tuning may want that; else make it again with boost-compile" in warning
    assert "Export" not in warning
    assert f"Warning: {shell(capsys, inspect, made, '--doctor').out}" == f"{warning}\n", "also of the file"
    assert "Warning" not in shell(capsys, command, *asked, "--training-mode", "-o", tmp_path / "other.boost").err


def test_passes_on_a_forward_graph_say_what_to_do(mlp: Path) -> None:
    with pytest.raises(Error, match="--optimizer"):
        bc.compile(bc.load(mlp), "gradient-accumulation{steps=2}")


def test_the_command(mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mlp.boost"
    asked = ("--optimizer", "adam{lr=0.01}", "--loss", CROSS_ENTROPY, "--freeze", "*.bias", "--accumulate", 2)
    done = shell(capsys, command, mlp, *asked, "-o", out)
    assert done.code == 0, done.err
    assert "states are trained" in done.err
    program = bc.load(out)
    assert program.micro_batches() == 2
    assert [r.name for r in program.reports][:2] == ["differentiate", "gradient-accumulation"]
    assert_one_error(shell(capsys, command, mlp, "--loss", "mse", "-o", out), "boost-compile", "--optimizer")


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        (
            "--optimizer",
            "adam{kwargs=3}",
            "optimizer 'adam' has no option 'kwargs' (known: beta1, beta2, eps, learn",
        ),
        ("--optimizer", "adam{lr=[]}", "'learning_rate' takes a number, or a list with one for each step, not []"),
        ("--optimizer", "adam{lr=x}", "'learning_rate' takes a number, or a list with one for each step, not 'x'"),
        ("--optimizer", "adam{beta1=2}", "beta1"),
        ("--optimizer", "adam{use_nesterov=1}", "option 'use_nesterov' takes true or false, not 1"),
        ("--optimizer", "rprop{etas=[1]}", "option 'etas' takes a list of 2 numbers, not [1]"),
        ("--loss", "huber{delta=foo}", "loss 'huber': option 'delta' takes a number, not 'foo'"),
        ("--loss", "multi-margin{p=1.5}", "option 'p' takes a whole number, not 1.5"),
        ("--loss", "bce{weight=[1,2]}", "option 'weight' takes a tensor, which cannot be written here"),
    ],
)
def test_options_of_another_kind_are_one_error_and_leave_no_file(
    flag: str,
    text: str,
    message: str,
    mlp: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """MindSpore would meet them while it compiles, print its stack and leave a folder."""
    asked = {"--optimizer": "adam", "--loss": "mse", flag: text}
    words = [word for pair in asked.items() for word in pair]
    monkeypatch.chdir(tmp_path)
    before = list(tmp_path.rglob("*"))
    assert_one_error(shell(capfd, command, mlp, *words, "-o", "out.boost"), "boost-compile", message)
    assert list(tmp_path.rglob("*")) == before


def test_whole_numbers_and_none_are_taken_as_meant(
    mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (
        "--optimizer",
        "momentum{lr=1,momentum=0,use_nesterov=false}",
        "--loss",
        "smooth-l1{beta=2,reduction=none}",
    )
    done = shell(capsys, command, mlp, *asked, "-o", tmp_path / "out.boost")
    assert done.code == 0, done.err
    assert bc.load(tmp_path / "out.boost").state["learning_rate"].initial == 1.0


def test_options_are_read_as_they_are_meant() -> None:
    spec = parse_spec('name{a=1,b=0.5,c=true,d=none,e=[0.9, 0.99],f="x, y",g=mean}', "loss")
    assert spec.options == {"a": 1, "b": 0.5, "c": True, "d": None, "e": [0.9, 0.99], "f": "x, y", "g": "mean"}


def test_the_options_of_all_optimizers_and_losses_are_known() -> None:
    """Behind whatever decorators their constructors have."""
    assert all("learning_rate" in parameters_of(getattr(nn, name)) for name in OPTIMIZERS.values())
    kinds = {name: parameters_of(getattr(nn, name)) for name in {kind.name for kind in LOSSES.values()}}
    assert not [name for name, known in kinds.items() if {"args", "kwargs"} & set(known)]
    assert "reduction" in kinds["MSELoss"]


# -- all losses and all optimizers -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name: str, tmp_path: Path) -> None:
    """Two steps against the native cell, on labels that the loss takes."""
    probabilities = name == "bce"
    path = export(network_of_mlp(probabilities), CASES["mlp"].batches(1)[0][:1], tmp_path / "mlp.mindir")
    program = bc.differentiate(bc.load(path), "sgd{lr=0.01}", name)
    if name in NO_KERNEL:
        return
    x, label = program.graphs["step"].inputs
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(2):
        shape, dtype = label.type.shape, label.type.dtype.value
        whole = dtype.startswith("int")
        labels = rng.integers(0, 2, shape) if whole else rng.uniform(0.1, 0.9, shape)
        batches.append((rng.standard_normal(x.type.shape).astype(np.float32), labels.astype(dtype)))
    kind = LOSSES[name]
    loss = getattr(nn, kind.name)(**dict(kind.defaults))
    native = native_mlp(loss, lambda p: nn.SGD(p, 0.01), batches, probabilities=probabilities)
    assert_equal(trained(program, batches)[1], native)


REQUIRED = {"Momentum": {"learning_rate": 0.01, "momentum": 0.9}, "Lamb": {"learning_rate": 0.01}}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(mlp: Path, name: str) -> None:
    options = REQUIRED.get(OPTIMIZERS[name], {})
    text = name + "{" + ",".join(f"{k}={v}" for k, v in options.items()) + "}"
    program = bc.differentiate(bc.load(mlp), text, CROSS_ENTROPY)
    if name in NO_KERNEL:
        return
    batches = CASES["mlp"].batches(2)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    native = native_mlp(loss, lambda p: getattr(nn, OPTIMIZERS[name])(p, **options), batches)
    assert_equal(trained(program, batches)[1], native)


def test_a_forward_graph_does_not_seem_to_train(tmp_path):
    program = bc.load(without_loss("lenet_bn", tmp_path, training=True))
    x, y = CASES["lenet_bn"].batches(1)[0]
    session = bc.Session(program)
    before = session.state()
    for attempt in (lambda: session.step(x), lambda: session.fit((x,)), lambda: session.cell):
        with pytest.raises(Error, match=r"forward graph.*nn\.TrainOneStepCell.*bc\.differentiate"):
            attempt()
    assert_equal(session.state(), before)
    trains = bc.differentiate(program, "momentum{lr=0.1,momentum=0.9}", loss=CROSS_ENTROPY)
    assert bc.Session(trains).step(x, y).updated
