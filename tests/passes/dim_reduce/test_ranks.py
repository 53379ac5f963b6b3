"""dim-reduce over ranks: each holds its share of the basis, and all together search as one process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boost_compile as bc
from tests.dim_reduce_job import CYCLES, shares, train
from tests.passes.dim_reduce.basis import orthonormal, trained
from tests.ranks import run_ranks

RANKS, ROWS = 2, 5
OPTIONS = "rho=0.55,gamma=0.9,alpha=0.05,sigma=0.7,max_trials=3"
RUNS = [("mlp", 1), ("mlp", 2)]


@pytest.fixture(scope="module")
def job(exported: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    folder = tmp_path_factory.mktemp("dim-reduce")
    for name, micro in RUNS:
        _program(exported, folder, name, micro, "data-parallel,").save(str(folder / f"{name}-{micro}.boost"))
    return run_ranks("tests.dim_reduce_job", RANKS, str(folder)), folder


def _program(exported: Any, folder: Path, name: str, micro: int, before: str) -> bc.Program:
    source = bc.load(str(exported(name)))
    shapes = trained(source)
    np.save(folder / "basis.npy", orthonormal(shapes, ROWS))
    accumulate = f"gradient-accumulation{{steps={micro}}}," if micro > 1 else ""
    search = f"dim-reduce{{basis={folder}/basis.npy,n_components={ROWS},{OPTIONS}}}"
    program = bc.compile(source, f"{before}{accumulate}{search}")
    # Larger weights make a loss that is more curved, so that not every trial is accepted.
    return program.with_values({n: 6 * program.state[n].initial for n in shapes})


@pytest.mark.parametrize(("name", "micro"), RUNS)
def test_ranks_search_as_one_process_with_all_micro_batches(name: str, micro: int, exported: Any, job: Any) -> None:
    results, folder = job
    key = f"{name}-{micro}"
    alone = bc.Session(_program(exported, folder, name, RANKS * micro, ""))
    together = [[batch for rank in cycle for batch in rank] for cycle in shares(name, RANKS, micro)]
    reference = train(alone, together, key)
    weights = trained(alone.program)
    weights = {n: s for n, s in weights.items() if not n.startswith("dim_reduce")}
    decisions = set()
    for cycle in range(CYCLES):
        at = f"{key}/{cycle}/"
        for rank in results:
            assert np.array_equal(rank[at + "trials"], reference[at + "trials"])
            np.testing.assert_allclose(rank[at + "trial_loss"], reference[at + "trial_loss"], rtol=1e-5)
            for n in (*weights, "dim_reduce.inverse_hessian", "dim_reduce.gradient", "dim_reduce.last_step"):
                scale = float(np.abs(reference[at + n]).max())
                assert np.abs(rank[at + n] - reference[at + n]).max() <= 5e-5 * scale
        decisions.add(tuple(reference[at + "trials"]))
        for n in weights:
            assert np.array_equal(results[0][at + n], results[1][at + n])
    assert len(decisions) > 1


def test_each_rank_holds_its_share_of_the_basis(job: Any) -> None:
    """Five rows on two ranks: three each, of which one is empty."""
    results, _ = job
    for rank in results:
        assert set(rank["mlp-1/rows"]) == {3}
