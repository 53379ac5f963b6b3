"""boost-verify: what holds is verified, what does not is not, and nothing is shown by data that shows nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.graph import Node
from boost_compile.ir.text import parse_program
from boost_compile.passes import clip_gradients
from boost_compile.passes.gradient_accumulation import graphs as accumulation
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.verification import progress
from boost_compile.tools.verification.data import random_batches
from boost_compile.tools.verification.ranges import upper_bound
from boost_compile.tools.verification.recent import Recent
from boost_compile.tools.verification.report import FAILED, LEFT_OUT, NOT_APPLICABLE, PASSED, VACUOUS, Verification
from boost_compile.tools.verification.tolerance import Expected, compare
from boost_compile.tools.verification.verifier import PROPERTIES
from boost_compile.tools.verify import command

import boost_compile as bc
from tests.networks import CASES, names

from .support import assert_one_error, shell, write_data

Load = Callable[[str], bc.Program]


@pytest.fixture
def load(exported: Callable[[str], Path]) -> Load:
    return lambda name: bc.load(exported(name))


def statuses(found: Verification) -> dict[str, str]:
    return {r.name: r.status for r in found.results if r.status != NOT_APPLICABLE}


def show(found: Verification) -> str:
    return "\n".join(f"{r.name}: {r.status}: {r.detail} {r.deviation}" for r in found.results)


# -- what holds --------------------------------------------------------------------------------------------------------

BOUNDARY = "gradient-accumulation{steps=2},loss-scale{mode=static,init=100.0},overflow-check"


@pytest.mark.parametrize(
    ("case", "pipeline", "properties"),
    [
        # A bias in front of BatchNorm has no gradient but rounding, and Adam makes full steps of it; a scale that is no
        # power of two changes that rounding.
        ("lenet_bn_adam", BOUNDARY, {"losses", "overflow", "loss-scale linearity"}),
        ("mlp_mixed", "loss-scale,gradient-accumulation{steps=2}", {"overflow", "loss-scale linearity"}),
        ("dropout", "gradient-accumulation{steps=3,split=fused}", {"random draws", "short window"}),
        ("two_inputs", "overflow-check{policy=skip-micro},gradient-accumulation{steps=3}", {"overflow"}),
        ("sample_weights_adam", "gradient-accumulation{steps=2,reduction=weighted,weight=inputs2}", {"short window"}),
        ("mlp_momentum_decay", "clip-gradients{by=value,limit=0.01},gradient-accumulation{steps=2}", {"clipping"}),
        # Scaled gradients are clipped behind the cell's own unscaling.
        (
            "mlp_loss_scale_dynamic_adam",
            "gradient-accumulation{steps=2},clip-gradients{limit=0.1}",
            {"different micro-batches", "short window", "clipping"},
        ),
        ("mlp_adam_decay", "gradient-freeze{groups=2},gradient-centralization", {"frozen weights"}),
        ("mlp_adam", "gradient-freeze{groups=2},clip-gradients{limit=0.1}", {"frozen weights", "clipping"}),
        (
            "mlp_adam_weight_decay",
            "parameter-groups{match=[*.bias],lr_factor=0.5,weight_decay=0.0},gradient-accumulation{steps=2}",
            {"other weights"},
        ),
        ("residual_none", "less-bn{select=scope,scope=*bn1*}", {"different micro-batches", "derivative"}),
        # Another batch: the original, whose loss scale is in its gradients, is asked on as many samples as it takes.
        ("mlp_loss_scale_dynamic", "batch-size{size=3}", {"derivative"}),
        # A cell with two optimizers in turn: the second gradients are taken behind the first update.
        ("in_turn", "recompute{policy=all}", {"different micro-batches"}),
    ],
)
def test_programs_of_all_passes_are_verified(case: str, pipeline: str, properties: set[str], load: Load) -> None:
    source = load(case)
    found = bc.verify(source, bc.compile(source, pipeline))
    assert found.verified, show(found)
    assert found.guilty is None
    assert properties <= statuses(found).keys(), show(found)
    assert "initial state" in statuses(found)
    assert found.pipeline.startswith(tuple(p.name for p in bc.passes.parse_pipeline(pipeline))) or found.pipeline


def test_what_does_not_apply_says_why(load: Load) -> None:
    source = load("mlp")
    found = bc.verify(source, bc.compile(source, "gradient-accumulation{steps=2,reduction=sum}"))
    assert found.verified, show(found)
    assert "no pass clips gradients" in found.result("handed gradients").detail
    for r in found.results:
        assert r.status != NOT_APPLICABLE or len(r.detail) > 10
        assert r.promise


def test_a_sparse_gradient_has_no_direction_and_a_pass_that_matched_nothing_no_promise(load: Load) -> None:
    """Its rows come without their places, so the derivative of the loss along it is not measured."""
    source = load("lookup")
    passes = "normalised-head,tag-gradient-centralization?,lower-gradient-centralization?"
    found = bc.verify(source, bc.compile(source, passes, allow_no_match=True))
    assert found.verified, show(found)
    assert statuses(found).keys() >= {"derivative"}


@pytest.mark.parametrize("passes", ["parameter-groups{match=*.weight,lr_factor=0.5}", "clip-gradients{limit=1.0}"])
def test_later_gradients_of_a_cell_that_trains_in_turn_are_nobodys_fault(passes: str, load: Load) -> None:
    """They follow from updates that the pass changes. So nothing is shown, and that is no verified program."""
    source = load("in_turn")
    found = bc.verify(source, bc.compile(source, passes))
    assert not found.verified
    assert found.failures == ()
    assert found.guilty is None
    assert found.result("different micro-batches").status == VACUOUS
    assert f"which {passes.partition('{')[0]} changes" in found.result("losses").detail


def test_the_judge_updates_no_weight_that_a_closure_is_still_to_read(load: Load) -> None:
    """The backward part of a branch takes a weight along in a closure; in the judge its update awaits no gradient."""
    source = load("branch_state")
    found = bc.verify(source, source.copy(), data=CASES["branch_state"].batches(2))
    assert found.verified, show(found)
    assert "state" in found.result("losses").detail


PRESERVING = [
    "common-subexpression-elimination,effect-chain-minimization,dead-code-elimination",
    "gradient-accumulation{steps=3}",
    "overflow-check,gradient-accumulation{steps=2,split=fused},loss-scale{mode=static,init=100.0}",
    "loss-scale,overflow-check,gradient-accumulation{steps=2},dead-code-elimination",
    "overflow-check{policy=skip-micro},gradient-accumulation{steps=3,reduction=sum},common-subexpression-elimination",
]


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PRESERVING, ids=range(len(PRESERVING)))
@pytest.mark.parametrize("case", names(without=("refused",), runs_on_cpu=True))
def test_every_network_with_every_preserving_pipeline(case: str, pipeline: str, load: Load) -> None:
    source = load(case)
    try:
        program = bc.compile(source, pipeline)
    except bc.Error as error:
        pytest.skip(f"refused: {error}")
    data = CASES[case].batches(9)
    try:
        found = bc.verify(source, program, bisect=False)
    except bc.Error as error:
        if "--data" not in str(error):
            raise
        found = bc.verify(source, program, data=data, bisect=False)
    if VACUOUS in statuses(found).values():  # random data that takes no branch in which state is written
        found = bc.verify(source, program, data=data, bisect=False)
    assert found.verified, show(found)


# -- what does not hold ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["mlp", "mlp_adam"])
def test_small_faults_are_found(case: str, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean that is off by a ten-thousandth, under optimizers that do and do not forget the size of a gradient."""
    fault = 1e-4
    real = accumulation.declare_divisor

    def declare(node: Node, **options: Any) -> Node:
        graph = node.graph
        assert graph is not None
        factor = graph.constant(scalar_tensor("float32", 1.0 + fault))
        return real(graph.create("Mul", [node, factor]), **options)

    monkeypatch.setattr(accumulation, "declare_divisor", declare)
    source = load(case)
    found = bc.verify(source, bc.compile(source, "gradient-accumulation{steps=4}"), bisect=False)
    failed = found.result("different micro-batches")
    assert failed.status == FAILED
    assert failed.deviation is not None
    # Momenta and first moments show the fault in its size, second moments twice that.
    share = 1 - 1 / (1 + fault)
    assert 0.9 * share < failed.deviation.relative < 2.1 * share
    assert failed.deviation.excess > 1
    assert found.result("initial state").status == PASSED


def test_a_program_that_was_changed_after_compilation(load: Load) -> None:
    """No pass is guilty: the pipeline, run again, makes a program that is right."""
    source = load("mlp")
    program = bc.compile(source, "gradient-accumulation{steps=2}")
    bias = program.state["hidden.bias"].initial + np.float32(1e-3)
    found = bc.verify(source, program.with_values({"hidden.bias": bias}))
    assert found.result("initial state").status == FAILED
    assert "hidden.bias" in found.result("initial state").detail
    assert found.guilty is not None
    assert found.guilty.name == ""


def test_state_that_a_removed_batch_norm_leaves_behind(load: Load) -> None:
    source = load("residual_none")
    program = bc.compile(source, "less-bn{select=scope,scope=*bn1*}")
    left = "network.bn1.moving_mean"
    assert left not in program.state
    program.state[left] = source.state[left]
    found = bc.verify(source, program, bisect=False)
    assert "initial state" in [r.name for r in found.failures]
    assert left in found.failures[0].detail


def test_updates_that_move_nothing_are_vacuous(load: Load) -> None:
    """With a learning rate of zero every program is right, so nothing is shown."""
    source = load("mlp_sgd")
    still = source.with_values({"learning_rate": np.zeros_like(source.state["learning_rate"].initial)})
    found = bc.verify(still, bc.compile(still, "overflow-check"))
    assert found.result("different micro-batches").status == VACUOUS
    assert not found.verified
    assert not found.failures
    assert found.guilty is None


def test_clipping_that_never_bites_is_vacuous(load: Load) -> None:
    source = load("mlp")
    found = bc.verify(source, bc.compile(source, "clip-gradients{limit=1e30}"))
    assert found.result("clipping").status == VACUOUS
    assert not found.verified


def test_compile_and_verify(
    exported: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = (exported("mlp"), "--loss-scale", "8", "--clip-norm", "0.1", "--verify", "--json", "-o", "a.boost")
    done = shell(capsys, compile_command, *arguments)
    assert done.code == 0, done.err
    assert done.document["verification"]["verified"] is True
    assert json.loads(Path("a.boost/verification.json").read_text())["verified"] is True

    real = clip_gradients.norm
    monkeypatch.setattr(clip_gradients, "norm", lambda graph, squares: real(graph, list(squares)[1:]))
    done = shell(capsys, compile_command, *arguments[:-3], "-q", "-o", "b.boost")
    assert done.code == 1
    assert done.out == ""
    assert "Guilty: pass 2 of 2, clip-gradients" in done.err
    assert "NOT verified" in done.err
    assert json.loads(Path("b.boost/verification.json").read_text())["guilty"]["name"] == "clip-gradients"


# -- the command -------------------------------------------------------------------------------------------------------


def test_where_no_update_was_compared_nothing_was_verified(
    exported: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 3, whichever command it is; what else holds is no verification."""
    np.save(tmp_path / "basis.npy", np.eye(32, 212, dtype=np.float32))
    program, passes = tmp_path / "a.boost", f"dim-reduce{{basis={tmp_path}/basis.npy}}"
    asked = (exported("mlp"), "--passes", passes)
    says = "Nothing was verified: no update was compared, because dim-reduce changes training in a way"
    done = shell(capsys, compile_command, *asked, "--verify", "-o", program)
    assert done.code == 3
    assert done.out.splitlines()[-1].startswith(says)
    done = shell(capsys, command, exported("mlp"), program, "--json")
    assert done.code == 3
    assert done.document["verified"] is False
    assert (done.document["exit_status"], done.document["verdict"].startswith(says)) == (3, True)
    found = bc.verify(str(exported("mlp")), str(program))
    assert not found
    assert found.failures == ()
    assert repr(found).startswith(says)


def test_the_updates_of_a_cell_that_checks_for_overflows_itself_are_compared(load: Load) -> None:
    """They stand in a branch, where no gradient can be had; the stated program updates always. One process combines
    nothing by adasum."""
    source = load("scaled_dynamic")
    for pipeline in ("replace-optimizer{to=lion}", "clip-gradients{limit=0.1},adasum"):
        found = bc.verify(source, bc.compile(source, pipeline), quick=True)
        assert found.verified, found
        assert found.result("different micro-batches").status == PASSED
    assert "in one process" in found.verdict()


def save(program: bc.Program, path: str) -> str:
    program.save(path)
    return path


def test_the_command(
    here: Path, exported: Callable[[str], Path], load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    program = save(bc.compile(load("mlp"), "gradient-accumulation{steps=2}"), "mlp.boost")
    done = shell(capsys, command, exported("mlp"), program, "--seed", "3", "--verbose")
    assert done.code == 0, done.err
    assert "different micro-batches" in done.out
    assert "not applicable: overflow (the pipeline has no overflow-check)" in done.out
    says = "Verified: it trains as one batch of 2 times the size, if micro-batches are equal in size: 5 passed"
    assert " ".join(done.out.split()).startswith(says)
    stored = json.loads(Path(program, "verification.json").read_text())
    assert stored["verified"] is True
    assert stored["seed"] == 3
    assert set(stored["versions"]) == {"boost-compile", "mindspore", "numpy"}
    digest = hashlib.sha256(exported("mlp").read_bytes()).hexdigest()
    assert stored["hashes"]["original/mlp.mindir"] == digest
    files = {f"program/{f.name}" for f in Path(program).iterdir()} - {"program/verification.json"}
    assert set(stored["hashes"]) == {*files, "original/mlp.mindir"}
    for name in files:
        content = Path(program, name.partition("/")[2]).read_bytes()
        assert stored["hashes"][name] == hashlib.sha256(content).hexdigest()
    # What was stored does not keep the program from being read, and goes when it is written anew.
    assert bc.load(program).pipeline == stored["pipeline"]
    bc.load(program).save(program)
    assert not Path(program, "verification.json").exists()


def test_quick_says_what_it_leaves_out_and_where_it_is(
    here: Path,
    exported: Callable[[str], Path],
    load: Load,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    made = bc.compile(load("mlp"), "gradient-accumulation{steps=2},overflow-check,loss-scale,clip-gradients{limit=0.1}")
    path = save(made, "mlp.boost")
    done = shell(capsys, command, exported("mlp"), path, "--quick")
    assert done.code == 0, done.out
    left = "short window, loss-scale linearity, clipping, overflow"
    says = f"Verified but for what was left out ({left}): it trains as one batch of 2 times the size"
    assert " ".join(done.out.split()).startswith(says)
    assert "different micro-batches" not in done.out
    assert f"s, checking different micro-batches, 3 of {len(PROPERTIES)}: cycle 2" in done.err
    stored = json.loads(Path(path, "verification.json").read_text())
    assert {r["name"] for r in stored["results"] if r["status"] == LEFT_OUT} == set(left.split(", "))
    # What is not left out is checked as ever.
    program = made.with_values({"output.bias": made.state["output.bias"].initial * 2})
    save(program, path)
    assert shell(capsys, command, exported("mlp"), path, "--quick", "--no-bisect").code == 1


def test_the_same_state_and_micro_batch_are_computed_once() -> None:
    state, batch = {"w": np.zeros(3)}, (np.ones(2, np.float32),)
    computed: list[int] = []

    def compute() -> int:
        computed.append(len(computed))
        return computed[-1]

    recent: Recent[int] = Recent(lambda _: 1, limit=2)
    assert recent.get(state, batch, compute) == recent.get(dict(state), (batch[0].copy(),), compute) == 0
    # Another micro-batch, another type of it, another array of state though it holds the same: all computed anew.
    assert recent.get(state, (batch[0] * 2,), compute) == 1
    assert recent.get(state, (batch[0].view(np.int32),), compute) == 2
    assert recent.get({"w": np.zeros(3)}, batch, compute) == 3
    # The first had to go for the others.
    assert recent.get(state, batch, compute) == 4


def test_failure_is_exit_status_1(
    here: Path, exported: Callable[[str], Path], load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    program = bc.compile(load("mlp"), "overflow-check")
    bias = program.state["output.bias"].initial * 2
    path = save(program.with_values({"output.bias": bias}), "mlp.boost")
    done = shell(capsys, command, exported("mlp"), path, "--json", "--no-store")
    assert done.code == 1
    assert done.document["verified"] is False
    assert not Path(path, "verification.json").exists()


def test_data_of_the_user(
    here: Path, exported: Callable[[str], Path], load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(bc.compile(load("mlp"), "gradient-accumulation{steps=2}"), "mlp.boost")
    batches = CASES["mlp"].batches(4)
    write_data(Path("good.npz"), batches)
    assert shell(capsys, command, exported("mlp"), path, "--data", "good.npz").code == 0
    images, labels = batches[0]
    for name, images_, fragment in (
        ("same", np.tile(images, (4, 1)), "same gradients"),
        ("far", np.full((16, 8), np.inf, np.float32), "not finite"),
    ):
        np.savez(f"{name}.npz", images_, np.tile(labels, 4))
        done = shell(capsys, command, exported("mlp"), path, "--data", f"{name}.npz")
        assert_one_error(done, "boost-verify", fragment, "--data")


def test_a_self_contained_file_is_verified(
    here: Path, exported: Callable[[str], Path], load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = save(bc.compile(load("mlp"), "gradient-accumulation{steps=2}"), "whole.mindir")
    done = shell(capsys, command, exported("mlp"), whole, "--verbose")
    assert done.code == 0, done
    assert re.search(r"different micro-batches +passed", done.out)


def test_bad_input(here: Path, exported: Callable[[str], Path], load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    program = bc.compile(load("mlp"), "gradient-accumulation{steps=2}")
    path = save(program, "mlp.boost")
    assert_one_error(shell(capsys, command, path, path), "boost-verify", "compiled already")
    for compiled in (program, bc.compile(load("mlp"), "clip-gradients")):
        with pytest.raises(bc.Error, match="the original is compiled already"):
            bc.verify(compiled, load("mlp"))
    assert_one_error(shell(capsys, command, exported("mlp"), "nothing.boost"), "boost-verify", "nothing.boost")
    assert_one_error(shell(capsys, command, exported("two_inputs"), path), "boost-verify", "not made from it")
    assert_one_error(shell(capsys, command, exported("mlp"), path, "--cycles", "1"), "boost-verify", "--cycles")


# -- data and tolerance ------------------------------------------------------------------------------------------------


def bound(body: str, outside: str = "") -> int | None:
    program = parse_program(f"graph @step(%ids: int32[4], %x: float32[4,7]) {{\n{body}\n}}\n{outside}", "test")
    graph = program.graphs["step"]
    return upper_bound(graph, graph.inputs[0])


@pytest.mark.parametrize(
    ("case", "name", "size"),
    [
        ("lookup", "inputs0", 20),  # rows of an embedding
        ("lenet_bn", "inputs1", 10),  # classes of a fused loss
        ("gpt", "inputs1", 32),  # the same behind masks and views
        ("transcription", "inputs1", 3),  # classes but the blank
        ("branch", "inputs1", 4),
    ],
)
def test_ranges_of_integers(case: str, name: str, size: int, load: Load) -> None:
    (graph,) = load(case).graphs.values()
    value = next(v for v in graph.inputs if v.name == name)
    assert upper_bound(graph, value) == size
    at = graph.inputs.index(value)
    batches, notes = random_batches(graph, 50, 0)
    drawn = np.concatenate([b[at].ravel() for b in batches])
    assert (drawn.min(), drawn.max()) == (0, size - 1)
    assert not any(f"'{name}'" in note for note in notes)


def test_a_range_that_nobody_tells(load: Load) -> None:
    (graph,) = load("cosine_embedding").graphs.values()
    batches, notes = random_batches(graph, 20, 0)
    assert set(np.unique([b[2] for b in batches])) == {0, 1}
    assert "nothing says which integers" in notes[0]


def test_the_same_seed_draws_the_same(load: Load) -> None:
    (graph,) = load("mlp_dynamic_batch").graphs.values()
    one, two, other = (random_batches(graph, 2, seed)[0] for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(one[1], two[1], strict=True))
    assert not (one[0][0] == other[0][0]).all()


def expected(before: list[float], after: list[float], moved: list[float]) -> Expected:
    a, b, c = ({"w": np.array(x, np.float32)} for x in (before, after, moved))
    return Expected(a, b, lambda: (c,))


def test_rounding_is_forgiven_and_nothing_more() -> None:
    up = np.nextafter(np.float32(0.9), np.float32(1))
    wanted = expected([1.0, 0.5], [0.9, 0.5], [0.9, 0.5])
    assert compare({"w": np.array([up, 0.5], np.float32)}, wanted, ["w"]).excess < 1
    assert compare({"w": np.array([0.9 * (1 + 1e-5), 0.5], np.float32)}, wanted, ["w"]).excess > 1
    # What training leaves alone has no rounding.
    off = compare({"w": np.array([0.9, np.nextafter(np.float32(0.5), np.float32(1))], np.float32)}, wanted, ["w"])
    assert off.excess == np.inf
    assert compare({"w": np.array([0.9, np.nan], np.float32)}, wanted, ["w"]).excess == np.inf


def test_noise_is_forgiven_where_it_was_measured() -> None:
    """The first element moves by a full step whatever its gradient's sign, the second does not."""
    wanted = expected([0.0, 0.0], [0.1, 0.1], [-0.1, 0.1])
    assert compare({"w": np.array([-0.1, 0.1], np.float32)}, wanted, ["w"]).excess < 1
    assert compare({"w": np.array([0.1, -0.1], np.float32)}, wanted, ["w"]).excess > 1
    assert compare({"w": np.array([-0.9, 0.1], np.float32)}, wanted, ["w"]).excess > 1


def test_counters_are_exact() -> None:
    one = {"n": np.array([3], np.int32)}
    found = compare({"n": np.array([4], np.int32)}, Expected(one, one, tuple), ["n"])
    assert found.excess == np.inf
    assert found.where == "n"


def test_programs_may_be_given_as_paths(exported: Callable[[str], Path], tmp_path: Path) -> None:
    original, path = exported("mlp"), tmp_path / "mlp.boost"
    bc.compile(original, "overflow-check").save(path)
    assert bc.verify(str(original), path, quick=True).verified
    assert "overflow-check" in str(bc.diff(original, str(path)))
    assert bc.memory(path) == bc.memory(bc.load(path))
    assert str(bc.evaluation_network(path)) == str(bc.evaluation_network(bc.load(path)))
