"""dim-reduce: every quantity of the line search against the formulas in numpy on native losses and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from safetensors.numpy import save_file

import boost_compile as bc
from tests.networks import CASES
from tests.passes.dim_reduce.basis import K, orthonormal, trained
from tests.passes.dim_reduce.line_search import Iteration, Reference
from tests.passes.dim_reduce.native import NativeLoss, Upstream


@pytest.fixture
def basis(exported: Any, tmp_path: Path) -> Any:
    """`basis(name)` writes an orthonormal basis for a case and returns its file."""

    def make(name: str, **options: Any) -> Path:
        path = tmp_path / f"{name}.npy"
        np.save(path, orthonormal(trained(bc.load(str(exported(name)))), **options))
        return path

    return make


class Trials:
    """The losses of all trials of a session, as its judge returned them."""

    def __init__(self, session: bc.Session) -> None:
        self.losses: list[float] = []
        run = session._engine.run
        outputs = session.program.graphs["judge"].outputs

        def watched(name: str, *given: Any) -> tuple[Any, ...]:
            results = run(name, *given)
            if name == "judge":
                self.losses.append(float(dict(zip(outputs, results, strict=True))["trial_loss"].asnumpy()))
            return results

        session._engine.run = watched  # type: ignore[method-assign]

    def take(self) -> list[float]:
        taken, self.losses = self.losses, []
        return taken


def assert_near(ours: np.ndarray, reference: np.ndarray, of: float = 0.0) -> None:
    """Equal but for the rounding of float32 sums: 5e-5 of the largest element (or of `of`, if that is more)."""
    scale = max(float(np.abs(reference).max()), of)
    assert np.abs(ours.reshape(reference.shape) - reference).max() <= 5e-5 * scale + 1e-9


def assert_same_cycle(
    session: bc.Session, result: bc.StepResult, losses: Sequence[float], seen: Iteration, reference: Reference
) -> None:
    # A decision within rounding of its bound would be no disagreement; these are far from it.
    assert all(abs(loss - bound) > 1e-4 for loss, bound in zip(seen.losses, seen.bounds, strict=True))
    state = session.state()
    assert (result.trials, result.accepted) == (len(seen.losses), seen.accepted)
    assert result.outputs["step_length"] == pytest.approx(seen.length, rel=1e-6)
    assert result.updated
    assert result.overflow is False
    np.testing.assert_allclose(losses, seen.losses, rtol=2e-5)
    np.testing.assert_allclose(state["dim_reduce.base_loss"], seen.base, rtol=2e-5)
    assert_near(state["dim_reduce.gradient"], seen.g)
    assert_near(state["dim_reduce.subspace_direction"], seen.d)
    assert_near(state["dim_reduce.last_step"], reference.s, of=float(np.abs(seen.d).max()))
    assert_near(state["dim_reduce.last_gradient"], reference.g_last, of=float(np.abs(seen.g).max()))
    assert_near(state["dim_reduce.inverse_hessian"], reference.B, of=1.0)
    for name, value in reference.split(reference.r).items():
        assert_near(state[f"dim_reduce.residual.{name}"], value, of=float(np.abs(reference.r).max()))
    for name, value in reference.split(reference.w).items():
        assert_near(state[name], value, of=float(np.abs(reference.w).max()))


def setting(rho: float = 0.55, gamma: float = 0.9, alpha: float = 0.05, sigma: float = 0.7, trials: int = 2) -> Any:
    """The options as the reference and the pipeline take them."""
    values = {"rho": rho, "gamma": gamma, "alpha": alpha, "sigma": sigma, "max_trials": trials}
    return values, ",".join(f"{name}={value}" for name, value in values.items())


@pytest.mark.parametrize(
    ("name", "before", "micro_batches"),
    [
        ("mlp", "", 1),
        pytest.param("mlp", "gradient-accumulation{steps=3,split=fused}", 3, marks=pytest.mark.slow),
        ("lenet_bn", "gradient-accumulation{steps=2}", 2),
        pytest.param("mlp", "loss-scale{mode=static,init=64}", 1, marks=pytest.mark.slow),
        pytest.param("mlp", "gradient-accumulation{steps=3}", 3, marks=pytest.mark.slow),
        pytest.param("mlp_adam", "", 1, marks=pytest.mark.slow),
    ],
)
def test_each_iteration_is_that_of_the_formulas(
    name: str, before: str, micro_batches: int, exported: Any, basis: Any
) -> None:
    """With cycles whose first trial is rejected, and some in which none is accepted."""
    source = bc.load(str(exported(name)))
    file = basis(name)
    values, options = setting()
    passes = f"dim-reduce{{basis={file},n_components={K},{options}}}"
    program = bc.compile(source, f"{before},{passes}" if before else passes)
    # Larger weights make a loss that is more curved, so that not every trial is accepted.
    scale = 6 if name.startswith("mlp") else 1
    start = {n: scale * program.state[n].initial for n in trained(source)}
    session = bc.Session(program.with_values(start))
    watched = Trials(session)
    native = NativeLoss(name)
    reference = Reference(native, start, np.load(file), **values)
    kinds = set()
    for cycle in CASES[name].cycles(10, micro_batches):
        statistics = dict(session.state())
        for batch in cycle:
            result = session.step(*batch)
        seen = reference.step(cycle)
        assert_same_cycle(session, result, watched.take(), seen, reference)
        kinds.add((seen.accepted, len(seen.losses) > 1))
        if name == "lenet_bn":
            moved = [n for n in statistics if "moving" in n and not n.startswith("dim_reduce")]
            assert len(moved) > 0
            assert all(np.any(session.state()[n] != statistics[n]) for n in moved)
    if name.startswith("mlp"):
        assert kinds == {(True, False), (True, True), (False, True)}


def test_with_two_trials_it_is_upstreams_algorithm(exported: Any, basis: Any) -> None:
    source = bc.load(str(exported("mlp")))
    file = basis("mlp")
    values, options = setting(trials=2)
    program = bc.compile(source, f"dim-reduce{{basis={file},n_components={K},{options}}}")
    start = {n: 6 * program.state[n].initial for n in trained(source)}
    session = bc.Session(program.with_values(start))
    upstream = Upstream("mlp", start, np.load(file), [values[n] for n in ("rho", "gamma", "alpha", "sigma")])
    accepted = set()
    for x, y in CASES["mlp"].batches(8):
        result = session.step(x, y)
        loss = float(upstream(ms.Tensor(x), ms.Tensor(y)).asnumpy())
        accepted.add(result.accepted)
        assert result.loss == pytest.approx(loss, rel=2e-5)
        state = session.state()
        for ours, theirs in (("inverse_hessian", "bk"), ("last_step", "sk"), ("last_gradient", "gk_last")):
            assert_near(state[f"dim_reduce.{ours}"], getattr(upstream.search, theirs).asnumpy())
        for weight_name, weight in zip(upstream.names, upstream.weights, strict=True):
            assert_near(state[weight_name], weight.asnumpy())
    assert accepted == {True, False}


@pytest.mark.parametrize("before", ["", "gradient-accumulation{steps=2}"])
def test_trials_drop_out_what_the_gradients_did(before: str, exported: Any, tmp_path: Path) -> None:
    """A trial at the same weights has the loss that the gradients were taken of: its step along a basis of rows that
    are zero but for one weight which the loss hardly notices."""
    source = bc.load(str(exported("dropout")))
    shapes = trained(source)
    rows = {n: np.zeros((1, *shape), np.float32) for n, shape in shapes.items()}
    last = list(shapes)[-1]
    rows[last].reshape(-1)[0] = 1
    save_file(rows, tmp_path / "basis.safetensors")
    passes = (
        f"dim-reduce{{basis={tmp_path}/basis.safetensors,n_components=1,max_trials=60,rho=0.5,sigma=1.0,alpha=0.0}}"
    )
    session = bc.Session(bc.compile(source, f"{before},{passes}" if before else passes))
    watched = Trials(session)
    for batch in CASES["dropout"].batches(2):
        result = session.step(*batch)
    # Convex along one bias: the tangent is undercut by rounding alone, when steps are small.
    assert (result.trials or 0) > 15
    base = float(session.state()["dim_reduce.base_loss"])
    assert watched.take()[-1] == pytest.approx(base, rel=1e-6)


def test_what_an_optimizer_answers_is_returned_without_it(exported: Any, basis: Any) -> None:
    """The cell returns what its optimizer returns: a True that waits for each update."""
    source = bc.load(exported("accuracy"))
    session = bc.Session(bc.compile(source, f"dim-reduce{{basis={basis('accuracy')},n_components={K}}}"))
    native = bc.Session(source)
    batch = CASES["accuracy"].batches(1)[0]
    ours, theirs = session.step(*batch).outputs, native.step(*batch).outputs
    assert set(theirs) <= set(ours)
    for name, value in theirs.items():
        np.testing.assert_array_equal(np.asarray(ours[name]), np.asarray(value), err_msg=name)


def test_a_trial_that_is_not_finite_is_not_accepted(exported: Any, tmp_path: Path) -> None:
    """A first step so long that the loss overflows, in a network that has no bounded output."""
    source = bc.load(str(exported("mlp")))
    np.save(tmp_path / "basis.npy", orthonormal(trained(source)))
    program = bc.compile(source, f"dim-reduce{{basis={tmp_path}/basis.npy,n_components={K},max_trials=2,rho=0.01}}")
    huge = np.eye(K, dtype=np.float32) * 1e38
    session = bc.Session(program.with_values({"dim_reduce.inverse_hessian": huge}))
    watched = Trials(session)
    result = session.step(*CASES["mlp"].batches(1)[0])
    assert not np.isfinite(watched.take()).any()
    assert (result.trials, result.accepted, result.outputs["step_length"]) == (2, False, 0.0)
    assert result.outputs["rejected_cycles"] == 1
    assert all(np.isfinite(session.state()[n]).all() for n in trained(source))


@pytest.mark.parametrize("suffix", [".safetensors", ".ckpt"])
def test_training_goes_on_from_a_checkpoint(suffix: str, exported: Any, basis: Any, tmp_path: Path) -> None:
    source = bc.load(str(exported("mlp")))
    _, options = setting()
    passes = f"gradient-accumulation{{steps=2}},dim-reduce{{basis={basis('mlp')},n_components={K},{options}}}"
    program = bc.compile(source, passes)
    whole, first = bc.Session(program), bc.Session(program)
    batches = CASES["mlp"].batches(8)
    for batch in batches[:4]:
        whole.step(*batch)
        first.step(*batch)
    checkpoint = tmp_path / f"state{suffix}"
    first.save(checkpoint)
    assert not any("basis" in n for n in first.state())
    program.save(str(tmp_path / "model.boost"))
    second = bc.Session(bc.load(str(tmp_path / "model.boost")))
    second.load_state(checkpoint)
    for batch in batches[4:]:
        whole.step(*batch)
        second.step(*batch)
    ours, reference = second.state(), whole.state()
    assert all(np.array_equal(ours[n], reference[n]) for n in reference)
    second.step(*batches[0])
    middle = second.state()
    with pytest.raises(bc.Error, match="end of a window"):
        first.load_state(middle)
    assert second.flush().trials  # the short cycle is searched on what it was fed


def test_the_loss_of_digits_goes_down(exported: Any, tmp_path: Path) -> None:
    """LeNet on digits: plain training leaves checkpoints, and what they span takes the loss down from the start."""
    from examples.digits import load

    digits = load()
    source = bc.load(str(exported("lenet_bn_sgd")))
    size = next(iter(source.graphs.values())).inputs[0].type.shape[0]
    rows = range(0, 20 * 8 * size, size)
    batches = [(digits.train_images[i : i + size], digits.train_labels[i : i + size]) for i in rows]
    accumulate = "gradient-accumulation{steps=8}"
    plain = bc.Session(bc.compile(source, accumulate))
    (tmp_path / "checkpoints").mkdir()
    for k, batch in enumerate(batches):
        if plain.step(*batch).updated:
            plain.save(tmp_path / "checkpoints" / f"{k:03}{'.ckpt' if k % 3 else '.safetensors'}")
    search = f"dim-reduce{{basis={tmp_path}/checkpoints,n_components=12}}"
    session = bc.Session(bc.compile(source, f"{accumulate},{search}"))
    before, after = [], []
    for batch in batches:
        result = session.step(*batch)
        if result.accepted:
            before.append(float(session.state()["dim_reduce.base_loss"]))
            after.append(result.outputs["trial_loss"])
    assert len(after) >= 18
    assert all(a < b for a, b in zip(after, before, strict=True))
    assert np.mean(before[-4:]) < 0.7 * np.mean(before[:4])


REFUSED = [
    ("mlp", "{0},overflow-check", "leave overflow-check out"),
    ("mlp", "loss-scale{{mode=dynamic}},{0}", "mode=static"),
    ("mlp", "{0},gradient-freeze{{groups=2}}", "gradient-freeze"),
]


@pytest.mark.parametrize(("name", "passes", "message"), REFUSED)
def test_what_a_search_cannot_work_with_is_refused(
    name: str, passes: str, message: str, exported: Any, basis: Any
) -> None:
    source = bc.load(str(exported(name)))
    own = f"dim-reduce{{basis={basis(name)},n_components={K}}}"
    with pytest.raises(bc.Error, match=message):
        bc.compile(source, passes.format(own))


@pytest.mark.parametrize("later", ["gradient-accumulation", "clip-gradients", "dim-reduce", "gradient-freeze"])
def test_later_passes_are_told_to_come_along(later: str, exported: Any, basis: Any) -> None:
    own = f"dim-reduce{{basis={basis('mlp')},n_components={K}}}"
    program = bc.compile(bc.load(str(exported("mlp"))), own)
    with pytest.raises(bc.Error, match=r"one pipeline|exclude each other"):
        bc.compile(program, own if later == "dim-reduce" else later)


def test_a_program_with_a_search_has_no_self_contained_form(exported: Any, basis: Any, tmp_path: Path) -> None:
    program = bc.compile(bc.load(str(exported("mlp"))), f"dim-reduce{{basis={basis('mlp')},n_components={K}}}")
    with pytest.raises(bc.Error, match="save a program directory"):
        program.save(str(tmp_path / "whole.mindir"))
