"""Digits that LeNet-5 recognises after training in float32 and in mixed precision, over many seeds.

    python -m benchmarks.digits_precision [SEEDS]       # 16 seeds without

One seed says little: a last bit of an initial weight moves the share of recognised digits by up to one hundredth, and
with some seeds LeNet does not leave its flat start in ten epochs (``LOST``). So each seed is trained at each level from
the same weights on the same batches, and the table shows medians. Prints each seed to stderr as it is done.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np

import boost_compile as bc
from benchmarks.machine import kept
from benchmarks.tables import ROOT, table

sys.path.insert(0, str(ROOT / "examples"))
import digits
from lenet import accuracy, export_lenet

LEVELS = {"float32": "", "O2": ",mixed-precision{level=O2}"}
OVERFLOWING = "O2, overflowing"
LOST = 50.0
"""Percent below which a training has not left its flat start."""
EPOCHS, RATE, MICRO_BATCHES = 10, 0.05, 4
STEPS = f"gradient-accumulation{{steps={MICRO_BATCHES}}}"


def _of_seed(folder: Path, seed: int) -> list[float]:
    """The percentages of held-out digits that are recognised after training from a seed, at each level."""
    path = export_lenet(folder / f"lenet{seed}.mindir", learning_rate=RATE, seed=seed)
    return [100 * recognised(path, seed, level) for level in (*LEVELS, OVERFLOWING)]


def recognised(path: Path, seed: int, level: str) -> float:
    """The share of held-out digits after training at a level, 0 to 1. At ``OVERFLOWING`` one micro-batch in ten is
    multiplied by a million, and must be dropped."""
    data = digits.load()
    overflowing = level == OVERFLOWING
    check = ",overflow-check{policy=skip-micro}" if overflowing else ""
    program = bc.compile(bc.load(path), STEPS + LEVELS["O2" if overflowing else level] + check)
    session = bc.Session(program, device="CPU")
    for i, places in enumerate(digits.order(len(data.train_labels), 32, EPOCHS, seed)):
        images = data.train_images[places]
        session.step(images * np.float32(1e6) if overflowing and i % 10 == 0 else images, data.train_labels[places])
    session.flush()
    state = {name: np.asarray(value) for name, value in session.state().items()}
    if not all(np.isfinite(value).all() for value in state.values() if value.dtype.kind == "f"):
        raise AssertionError(f"a state is not finite after training with seed {seed} at {level}")
    return accuracy(state, data.test_images, data.test_labels)


def run(seeds: int = 16) -> str:
    found: dict[str, list[float]] = {level: [] for level in (*LEVELS, OVERFLOWING)}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, seeds + 1):
            shares = kept(f"digits_precision {seed}", _of_seed, Path(folder), seed)
            for level, share in zip(found, shares, strict=True):
                found[level].append(share)
            print(seed, *(f"{level}: {all_[-1]:.1f}" for level, all_ in found.items()), file=sys.stderr, flush=True)
    rows = []
    for level, shares in found.items():
        pairs = zip(shares, found["float32"], strict=True)
        off = [here - there for here, there in pairs if min(here, there) > LOST]
        left = [share for share in shares if share > LOST]
        spread = f"{median(off):+.2f} ({min(off):+.1f} to {max(off):+.1f})"
        error = stdev(off) / len(off) ** 0.5 if len(off) > 1 else 0.0
        lost = len(shares) - len(left)
        rows.append([level, f"{lost}", f"{median(left):.2f} %", spread, f"{mean(off):+.2f} ± {error:.2f}"])
    head = [
        "level",
        f"seeds of {seeds} at the flat start",
        "median of the others",
        "off float32, points, median (range)",
        "mean ± its standard error",
    ]
    return "\n".join(table(head, rows))


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 16))
