"""The loss of a micro-batch at other weights, with what was drawn for the gradients; and what a search refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program

from tests.execution import train
from tests.graphs import program
from tests.material import material
from tests.passes.graphs import WEIGHTED

DROPPED = """
state %w: float32[4]<1.0, 2.0, 3.0, 4.0> role=weight
state %unused: float32[2] role=weight trainable=true
state %rate: float32[]<0.5> role=hyperparameter
graph @step(%x: float32[4]) -> (loss) {
  %w0 = Load(%w, umonad) @f
  %wx = Mul(%w0, %x) @f
  %d = Dropout(%wx, 0.5, 1, 2) : (float32[4], uint8[4]) @f
  %y = TupleGetItem(%d, 0) @f
  %mask = TupleGetItem(%d, 1) @f
  %noise = StandardNormal((4,), 1, 2) : float32[4] @f
  %z = Add(%y, %noise) @f
  %loss = Square(%z) : float32[4] @f
  %dz = Add(%z, %z) : float32[4] @b
  %dy = DropoutGrad(%dz, %mask) {keep_prob = 0.5} : float32[4] @b
  %g = Mul(%dy, %x) @b
  %u = UpdateState(umonad, %wx, %d)
  %up = ApplyGradientDescent(%w, %rate, %g, %u) : float32[4]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
"""A loss for each element of an input, which is multiplied, dropped or doubled, and blurred."""


@pytest.fixture
def search(tmp_path: Path) -> str:
    """One direction: that of the first element of the first weight."""
    return f"dim-reduce{{basis={tmp_path}/basis.npy,n_components=1,sigma=0.0,max_trials=3}}"


def compiled(source: Program, pipeline: str, folder: Path) -> Program:
    size = sum(v.type.size for v in source.state.values() if v.role == "weight")
    np.save(folder / "basis.npy", np.eye(1, size, dtype=np.float32))
    return compile_program(source, pipeline, reproducer_directory=None)


@pytest.mark.parametrize("attribute", [False, True])
@pytest.mark.parametrize("before", ["", "gradient-accumulation{steps=2},"])
def test_a_trial_sees_what_was_drawn_for_the_gradients(
    attribute: bool, before: str, search: str, tmp_path: Path
) -> None:
    """With a basis matrix of zero a trial is at the same weights, and has the same loss."""
    text = DROPPED.replace("%wx, 0.5, 1, 2)", "%wx) {keep_prob = 0.5}") if attribute else DROPPED
    found = compiled(program(text), before + search, tmp_path)
    (report,) = (r for r in found.reports if r.name == "dim-reduce")
    assert report.statistics["random draws kept"] == 2
    assert found.schedule.search is not None
    assert len(found.schedule.search.kept) == 2
    batches = [[np.arange(1, 5, dtype=np.float32) + k] for k in range(4)]
    for hessian in (0.0, 1.0):
        state = {"dim_reduce.inverse_hessian": np.full((1, 1), hessian, np.float32)}
        results, after = train(found, state, batches[: 2 if before else 1])
        judged = [dict(zip(found.graphs["judge"].outputs, r, strict=True)) for n, r in results if n == "judge"]
        base = float(after["dim_reduce.base_loss"])
        if not hessian:
            assert [float(j["trial_loss"]) for j in judged] == pytest.approx([base] * 3, rel=1e-6)
        elif bool(judged[-1]["accepted"]):
            assert float(judged[-1]["trial_loss"]) < base
        # What the loss does not depend on stays.
        np.testing.assert_array_equal(after["unused"], [0, 0])


@pytest.mark.parametrize(("split", "by"), [("apply", "n"), ("fused", "n"), ("apply", "mask")])
def test_losses_are_weighted_as_the_gradients_are(split: str, by: str, search: str, tmp_path: Path) -> None:
    """By a number, or by how many of a mask are true."""
    weigh = f"gradient-accumulation{{steps=3,reduction=weighted,weight={by},split={split}}},"
    found = compiled(program(WEIGHTED), weigh + search, tmp_path)
    xs = [np.array([1, 2]), np.array([3, 4]), np.array([5, 6])]
    for weights in ([1, 2, 2], [2, 0, 2]):
        masks = [np.arange(2) < n for n in weights]
        batches = [
            [x.astype(np.float32), np.float32(n if by == "n" else 7), mask]
            for x, n, mask in zip(xs, weights, masks, strict=True)
        ]
        w = np.array([0.5, 0.25], np.float32)
        results, after = train(found, {"w": w}, batches)
        gradient = np.average([x * x for x in xs], axis=0, weights=weights)
        assert float(after["dim_reduce.base_loss"]) == pytest.approx(gradient @ w, rel=1e-6)
        np.testing.assert_allclose(after["dim_reduce.gradient"], [[gradient[0]]], rtol=1e-6)
        (judged,) = (r for n, r in results if n == "judge")
        moved = w - [gradient[0], 0]
        assert float(judged[3]) == pytest.approx(gradient @ moved, rel=1e-6)
        # What is outside of the direction is moved by momentum.
        np.testing.assert_allclose(after["w"], moved - [0, 0.001 * gradient[1]], rtol=1e-6)


@pytest.mark.parametrize(("reduction", "divisor"), [("sum", 1), ("mean", 2)])
def test_losses_are_summed_where_the_gradients_are(reduction: str, divisor: int, search: str, tmp_path: Path) -> None:
    found = compiled(program(WEIGHTED), f"gradient-accumulation{{steps=2,reduction={reduction}}},{search}", tmp_path)
    xs = [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]
    w = np.array([0.5, 0.25], np.float32)
    _, after = train(found, {"w": w}, [[x, np.float32(1), np.ones(2, bool)] for x in xs])
    assert float(after["dim_reduce.base_loss"]) == pytest.approx(sum(x * x for x in xs) @ w / divisor, rel=1e-6)


def test_a_cycle_that_is_not_finite_changes_nothing_and_has_no_trial(search: str, tmp_path: Path) -> None:
    found = compiled(program(WEIGHTED), search, tmp_path)
    rest = [np.float32(1), np.ones(2, bool)]
    (_, first), _ = train(found, {}, [[np.ones(2, np.float32), *rest]])[0]
    assert [bool(first[1]), int(first[2])] == [False, 0]
    _, before = train(found, {}, [[np.ones(2, np.float32), *rest]])
    results, after = train(found, before, [[np.array([1, bad], np.float32), *rest] for bad in (np.inf, np.nan)])
    assert [name for name, _ in results] == ["step", "step"]
    assert [(bool(r[1]), int(r[2])) for _, r in results] == [(True, 1), (True, 2)]
    kept = ["w", *(f"dim_reduce.{n}" for n in ("inverse_hessian", "last_step", "last_gradient", "residual.w"))]
    for name in kept:
        np.testing.assert_array_equal(after[name], before[name])


NOISE = "  %noise = StandardNormal((4,), 1, 2) : float32[4] @f"
UPDATE = "  %up = ApplyGradientDescent(%w, %rate, %g, %u) : float32[4]"
END = "  %end = UpdateState(%u, %up)"
READ = "  %w0 = Load(%w, umonad) @f"
STATE = "state %rate"
REFUSED = {
    "on the weights": {NOISE: "  %noise = Gamma((4,), %w0, %w0) : float32[4] @f"},
    "nothing takes the mask": {
        "  %mask = TupleGetItem(%d, 1) @f": "",
        "  %dy = DropoutGrad(%dz, %mask) {keep_prob = 0.5} : float32[4] @b": "  %dy = Neg(%dz) @b",
    },
    "does not say which share": {"%wx, 0.5, 1, 2)": "%wx, 1, 1, 2)"},
    "takes the whole result": {NOISE: "  %all = Show(%d) : float32[4] @f\n  %noise = Neg(%all) : float32[4] @f"},
    "does not return its loss": {"-> (loss)": "-> (other)"},
    r"draws at random inside function 'noise'": {
        NOISE: "  %noise = call(@noise, %x) : float32[4] @f",
        "-> (loss) {": """-> (loss) {
  func @noise(%z: float32[4]) {
    %drawn = StandardNormal((4,), 1, 2) : float32[4] @f
    return %drawn
  }""",
    },
    r"on state 'h', which the forward part itself changes \(by %changed": {
        STATE: "state %h: float32[4] role=hyperparameter\nstate %rate",
        NOISE: "  %noise = Load(%h, umonad) @f\n  %t = UpdateState(umonad, %noise)\n  %changed = Assign(%h, %x, %t) @f",
        "UpdateState(umonad, %wx,": "UpdateState(%t, %changed, %wx,",
    },
    r"reads state 'h' \(by %noise.*which the update side changes": {
        STATE: "state %h: float32[4] role=hyperparameter\nstate %rate",
        NOISE: "  %noise = Load(%h, umonad) @f",
        "UpdateState(umonad, %wx,": "UpdateState(umonad, %noise, %wx,",
        UPDATE: f"{UPDATE}\n  %moved = AssignAdd(%h, %w0, %u)",
        END: "  %end = UpdateState(%u, %up, %moved)",
    },
    "weight 'w' is updated from several gradients": {
        END: "  %next = UpdateState(%u, %up)\n  %more = ApplyGradientDescent(%w, %rate, %dy, %next) : float32[4]\n"
        "  %end = UpdateState(%next, %more)",
    },
    "a state of the program is called 'dim_reduce.own'": {STATE: "state %dim_reduce.own: float32[]\nstate %rate"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_a_search_cannot_work_with_is_refused(message: str, search: str, tmp_path: Path) -> None:
    text = DROPPED
    for old, new in REFUSED[message].items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(PassError, match=message):
        compiled(program(text), search, tmp_path)


def test_other_programs_that_a_search_cannot_work_with(search: str, tmp_path: Path) -> None:
    with pytest.raises(PassError, match="the network reads state 'scale_sense'"):
        compiled(material("mlp_loss_scale_dynamic"), search, tmp_path)
    frozen = compile_program(material("mlp"), "gradient-freeze{groups=2}")
    with pytest.raises(PassError, match="exclude each other"):
        compiled(frozen, search, tmp_path)
    done = compiled(material("mlp"), search, tmp_path)
    for later, how in (("gradient-accumulation", "ask for both"), ("gradient-freeze", "exclude each other")):
        with pytest.raises(PassError, match=how):
            compile_program(done, later)


def test_what_was_replaced_is_reported(search: str, tmp_path: Path) -> None:
    source = material("mlp_adam_decay")
    found = compiled(source, search, tmp_path)
    (report,) = found.reports
    weights = [n for n, v in source.state.items() if v.role == "weight"]
    gone = source.state.keys() - found.state.keys()
    reason = "its weight-decay was part of the optimizer, which is replaced"
    assert [(m.site, m.reason) for m in report.misses] == [(n, reason) for n in weights]
    assert gone == {n for n, v in source.state.items() if v.role != "weight"}
    assert report.statistics == {
        "weights": 4,
        "elements": 212,
        "basis bytes": 4 * 212,
        "nodes in trial": len(found.graphs["trial"]),
        "random draws kept": 0,
        "state removed": ", ".join(sorted(gone)),
    }
    assert (report.matched, report.changed) == (4, 4)
    assert report.summary == (
        "line search among 1 directions of 4 weights (212 elements), at most 3 trials a cycle; the optimizer is gone, "
        "and 12 states of it"
    )
    assert found.schedule.max_skipped == 50
