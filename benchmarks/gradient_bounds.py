"""What ``mixed-precision{error=…}`` leaves in float32 so that no weight's gradient is further off.

    python -m benchmarks.gradient_bounds                 # all of them
    python -m benchmarks.gradient_bounds vit mobilenet_v2

Networks of the tests, at the batch that they are exported with, on four micro-batches of their own random data.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import boost_compile as bc
from benchmarks.tables import table
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES

BOUND = 0.01
NETWORKS = (
    "mlp", "regression_bce", "regression_mse", "two_inputs", "recurrence_unrolled", "frozen_prefix", "shared_weights",
    "lstm", "gpt", "vit", "branch", "loop", "dropout", "grouped_conv", "lenet_bn", "resnet18", "mobilenet_v2",
)  # fmt: skip


def bounded(name: str, folder: Path) -> list[str]:
    """The row of a network: what stays in float32, the share of operations that do not, and the worst gradient."""
    case = CASES[name]
    batches = zip(*case.batches(4), strict=True)
    data = folder / f"{name}.npz"
    np.savez(data, **{f"input{i}": np.concatenate(arrays) for i, arrays in enumerate(batches)})
    try:
        program = bc.compile(
            bc.load(export_once(name, zoo_folder())), f"mixed-precision{{level=O2,error={BOUND},data={data}}}"
        )
    except bc.Error as error:
        return [name, "-", "-", "-", str(error)]
    report = next(r for r in program.reports if r.name == "mixed-precision")
    found = report.statistics
    worst = next(iter(found["gradient errors"].values()), "-")
    return [name, str(found["cells kept for error"]), found["operations in float16"], worst, str(found["measurements"])]


def rows(names: Sequence[str]) -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            yield bounded(name, Path(folder))
            print(name, file=sys.stderr, flush=True)


def run(*names: str) -> str:
    head = ["network", "cells in float32", "operations in half precision", "worst gradient", "measurements"]
    return "\n".join(table(head, list(rows(names or NETWORKS))))


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
