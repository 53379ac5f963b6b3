"""Every quantity of the line search against its formulas, by numpy; test_dim_reduce.py judges the same by MindSpore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program

from tests.execution import ORDERS, Arrays, train
from tests.material import batches, material, values
from tests.passes.dim_reduce.basis import orthonormal, trained
from tests.passes.dim_reduce.line_search import Batch, Reference, Values

K = 5
OPTIONS = {"rho": 0.55, "gamma": 0.9, "alpha": 0.05, "sigma": 0.7, "max_trials": 2}


class Executed:
    """The network of an exported program with Momentum."""

    def __init__(self, program: Program, state: Arrays) -> None:
        self.program, self.state = program, state
        self.slots = {v.weight: n for n, v in program.state.items() if v.role == "slot" and v.weight}

    def steps(self, weights: Mapping[str, np.ndarray], given: Sequence[Batch]) -> list[tuple[float, Arrays]]:
        """The loss, and the state after a step without momentum, of each micro-batch."""
        empty = {n: np.zeros_like(self.state[n]) for n in self.slots.values()}
        here = {n: np.asarray(w, np.float32) for n, w in weights.items()}
        runs = [train(self.program, {**self.state, **empty, **here}, [b]) for b in given]
        return [(float(results[0][1]), after) for results, after in runs]

    def loss(self, weights: Mapping[str, np.ndarray], given: Sequence[Batch]) -> float:
        return float(np.mean([loss for loss, _ in self.steps(weights, given)]))

    def gradients(self, weights: Mapping[str, np.ndarray], given: Sequence[Batch]) -> Values:
        after = [state for _, state in self.steps(weights, given)]
        return {n: np.mean([s[self.slots[n]] for s in after], axis=0, dtype=np.float64) for n in weights}


def near(found: np.ndarray, wanted: np.ndarray, of: float = 0.0) -> None:
    """Equal but for the rounding of float32 sums: 5e-5 of the largest element (or of `of`, if that is more)."""
    limit = 5e-5 * max(float(np.abs(wanted).max()), of) + 1e-9
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=0, atol=limit)


@pytest.mark.parametrize(
    ("name", "before", "micro_batches", "scale"),
    [
        ("mlp", "", 1, 3),
        ("mlp", "loss-scale{mode=static,init=64},", 1, 3),
        ("mlp", "gradient-accumulation{steps=2},", 2, 1),
        ("mlp", "gradient-accumulation{steps=2,split=fused},", 2, 1),
        ("residual", "", 1, 0.3),
    ],
)
def test_each_iteration_is_that_of_the_formulas(
    name: str, before: str, micro_batches: int, scale: float, tmp_path: Path
) -> None:
    """With cycles whose first trial is rejected, and some in which none is accepted. Weights are scaled to make a loss
    that is curved enough for that."""
    source = material(name)
    np.save(tmp_path / "basis.npy", orthonormal(trained(source), K))
    options = ",".join(f"{n}={v}" for n, v in OPTIONS.items())
    pipeline = f"{before}dim-reduce{{basis={tmp_path}/basis.npy,n_components={K},{options}}}"
    program = compile_program(source, pipeline, reproducer_directory=None)
    given = values(source)
    given |= {n: np.float32(scale) * given[n] for n in trained(source)}
    start = {n: given[n] for n in trained(source)}
    reference = Reference(Executed(source, given), start, np.load(tmp_path / "basis.npy"), **OPTIONS)  # type: ignore[arg-type]
    state, kinds = given, set()
    cycles = 8 if name == "mlp" else 5
    data = batches(source, cycles * micro_batches)
    for k in range(cycles):
        cycle = data[k * micro_batches : (k + 1) * micro_batches]
        results, after = train(program, state, cycle, ORDERS[k % len(ORDERS)])
        seen = reference.step(cycle)
        assert all(abs(loss - bound) > 1e-5 for loss, bound in zip(seen.losses, seen.bounds, strict=True))
        judged = [dict(zip(program.graphs["judge"].outputs, r, strict=True)) for n, r in results if n == "judge"]
        np.testing.assert_allclose([float(j["trial_loss"]) for j in judged], seen.losses, rtol=2e-5)
        last = judged[-1]
        assert (int(last["trials"]), bool(last["accepted"])) == (len(seen.losses), seen.accepted)
        assert float(last["step_length"]) == pytest.approx(seen.length, rel=1e-6)
        own = {n.removeprefix("dim_reduce."): v for n, v in after.items() if n.startswith("dim_reduce.")}
        assert float(own["base_loss"]) == pytest.approx(seen.base, rel=2e-5)
        near(own["gradient"], seen.g)
        near(own["subspace_direction"], seen.d)
        near(own["last_step"], reference.s, of=float(np.abs(seen.d).max()))
        near(own["last_gradient"], reference.g_last, of=float(np.abs(seen.g).max()))
        near(own["inverse_hessian"], reference.B, of=1.0)
        for n, value in reference.split(reference.r).items():
            near(own[f"residual.{n}"], value, of=float(np.abs(reference.r).max()))
        for n, value in reference.split(reference.w).items():
            near(after[n], value, of=float(np.abs(reference.w).max()))
        plain = train(source, state, cycle)[1]
        for n, variable in source.state.items():
            if variable.role == "statistic":  # trials have none
                np.testing.assert_array_equal(after[n], plain[n])
        kinds.add((seen.accepted, len(seen.losses)))
        state = after
    assert kinds >= {(True, 1), (False, 2)}
