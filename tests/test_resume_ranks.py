"""Two ranks that are stopped at any micro-batch and go on, each with what it had for itself: sums of a running cycle,
BatchNorm statistics, the slots of AdaSum's groups, masks of dropout, the micro-batches of a search."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc
from tests.exact_resume import assert_same_bits
from tests.ranks import run_ranks

ACCUMULATE = "gradient-accumulation{steps=3}"
RUNS = {
    "adasum": ("dropout", f"{ACCUMULATE},adasum"),
    "statistics": ("lenet_bn", f"{ACCUMULATE},data-parallel,loss-scale{{mode=dynamic,window=2}},overflow-check"),
}


@pytest.mark.slow
@pytest.mark.xdist_group("ranks")
def test_each_rank_goes_on_with_its_own(exported, tmp_path: Path):
    runs = {}
    for name, (case, passes) in RUNS.items():
        bc.compile(bc.load(exported(case)), passes).save(tmp_path / f"{name}.boost")
        suffix = ".ckpt" if name == "adasum" else ".safetensors"
        runs[name] = {"case": case, "program": str(tmp_path / f"{name}.boost"), "steps": [1, 3, 8], "suffix": suffix}
    source, basis = bc.load(exported("dropout")), tmp_path / "basis.npy"
    columns = sum(v.type.size for v in source.state.values() if v.role == "weight" and v.trainable)
    np.save(basis, np.linalg.qr(np.random.default_rng(0).standard_normal((columns, 3)))[0].T.astype(np.float32))
    bc.compile(source, f"{ACCUMULATE},data-parallel,dim-reduce{{basis={basis},n_components=3}}").save(
        tmp_path / "search.boost"
    )
    runs["search"] = {
        "case": "dropout", "program": str(tmp_path / "search.boost"), "steps": [2], "suffix": ".safetensors"
    }  # fmt: skip
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    reports = run_ranks("tests.resume_job", 2, str(tmp_path / "runs.json"))
    differing = set()
    for rank, values in enumerate(reports):
        for name, run in runs.items():
            whole = part(values, f"{name}/whole/")
            for step in run["steps"]:
                assert_same_bits(part(values, f"{name}/{step}/"), whole, f"rank {rank}, {name} after {step}")
    for name in ("adasum", "statistics"):
        first, second = (part(values, f"{name}/whole/") for values in reports)
        differing = {n for n in first if not np.array_equal(first[n], second[n])}
        assert differing, f"{name}: nothing was each rank's own, so nothing was shown"


def part(values: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name[len(prefix) :]: value for name, value in values.items() if name.startswith(prefix)}
