"""Every convolution of resnet50's step by the setting of oneDNN, and as products: what could be gained.

The network is MindCV's resnet50 on images of 224x224. Each distinct convolution of its exported step runs by itself,
and so do both its gradients: as MindSpore has them, and as products. A setting holds for a whole process, so each has
one.

    python -m benchmarks.convolutions        # prints the table
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import child_environment
from benchmarks.tables import ROOT, table

SETTINGS = {"AVX-512": "ALL", "AVX2": "AVX2"}
BATCH, PIXELS, TURNS, STEPS = 2, 224, 7, 5
SLOW, SLOW_STEP = 0.5, 5.0
"""Seconds of a kernel, and of a step, from which the first run says enough, compilation included."""
AS_IT_IS = "as it is"
PARTS = ("forward", "input", "weights")
Times = dict[str, dict[str, dict[str, float]]]
"""Seconds by convolution, part and form."""


class Convolution(NamedTuple):
    """``image`` and ``result``: [N, C, H, W]; ``filters``: [O, C, k, k]."""

    image: tuple[int, ...]
    filters: tuple[int, ...]
    result: tuple[int, ...]
    stride: int
    pad: int

    def __str__(self) -> str:
        o, c, k, _ = self.filters
        by = f", stride {self.stride}" if self.stride > 1 else ""
        return f"{c} to {o}, {k}x{k}{by}, at {self.image[2]}"


def convolutions(path: Path) -> Counter[Convolution]:
    """The distinct convolutions of a step, and how many there are of each."""
    from boost_compile.ir.core.graph import tensor_type

    import boost_compile as bc

    found: Counter[Convolution] = Counter()
    for node in bc.load(str(path)).graphs["step"]:
        if node.op.name == "Conv2D":
            image, filters = (tensor_type(value).shape for value in node.operands)
            stride, pad = (node.attributes[name][-1] for name in ("stride", "pad_list"))  # type: ignore[index]
            found[Convolution(image, filters, tensor_type(node).shape, int(stride), int(pad))] += 1  # type: ignore[call-overload]
    return found


def measured(found: Mapping[Convolution, int]) -> Times:
    return {
        str(c): {
            part: {form: _seconds(cell, *operands) for form, cell in ways.items()}
            for part, (operands, ways) in _parts(c).items()
        }
        for c in found
    }


def _parts(c: Convolution) -> dict[str, tuple[tuple[Any, Any], dict[str, Any]]]:
    """The operands of each part, and the Cells that compute it."""
    from benchmarks.convolution_cells import Columns, ColumnsBack, ColumnsFilters, Kernel, Point, Shifted, primitives

    rng = np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(shape, np.float32) for shape in (c.image, c.filters, c.result))
    o, i, k, _ = c.filters
    forward, back, filters = primitives(o, k, c.stride, c.pad)
    ways: dict[str, dict[str, Any]] = {
        "forward": {AS_IT_IS: Kernel(forward)},
        "input": {AS_IT_IS: Kernel(back, c.image)},
        "weights": {AS_IT_IS: Kernel(filters, c.filters)},
    }
    if k > 1:
        for part, kind in zip(PARTS, (Columns, ColumnsBack, ColumnsFilters), strict=True):
            ways[part]["columns"] = kind(c)
        if c.stride == 1:
            ways["forward"]["shifted"], ways["input"]["shifted"] = (
                Shifted(o, k, c.pad, False),
                Shifted(i, k, c.pad, True),
            )
    elif c.stride == 1:
        for part in PARTS:
            ways[part]["matrix"] = Point(part, c)
    operands = {"forward": (x, w), "input": (dy, w), "weights": (dy, x)}
    return {part: (operands[part], ways[part]) for part in PARTS}


def _seconds(cell: Any, a: Any, b: Any) -> float:
    """Half of what three of it take longer than one, the median of turns; of slow ones, one run."""
    import mindspore as ms

    from benchmarks.convolution_cells import Copies

    operands = ms.Tensor(a), ms.Tensor(b)

    def run(copies: Any) -> float:
        begun = time.perf_counter()
        copies(*operands)[0].asnumpy()
        return time.perf_counter() - begun

    one, three = Copies(cell, 1), Copies(cell, 3)
    once = run(one)
    if once > SLOW:
        return once
    run(three)
    return statistics.median((run(three) - run(one)) / 2 for _ in range(TURNS))


def step_seconds(path: Path) -> float:
    """A whole step, in a session."""
    import boost_compile as bc
    from benchmarks.sessions import seconds_a_step

    session = bc.Session(str(path))
    batches = [_images(np.random.default_rng(0), BATCH)]
    first = seconds_a_step(session, batches)
    return first if first > SLOW_STEP else statistics.median(seconds_a_step(session, batches) for _ in range(STEPS))


def _images(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return rng.standard_normal((size, 3, PIXELS, PIXELS), np.float32), rng.integers(0, 10, size).astype(np.int32)


def child(setting: str, path: str) -> tuple[Times, float]:
    """What a process with a setting measures."""
    environment = child_environment() | {"ONEDNN_MAX_CPU_ISA": SETTINGS[setting]}
    command = [sys.executable, "-m", "benchmarks.convolutions", "--child", path]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def export_network(folder: Path) -> Path:
    from tests.networks import CASES, export

    return export(replace(CASES["resnet50"], batch=_images, batch_size=BATCH), folder)


def run() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = export_network(Path(folder))
        found = convolutions(path)
        return shown(found, {setting: child(setting, str(path)) for setting in SETTINGS})


def shown(found: Mapping[Convolution, int], results: Mapping[str, tuple[Times, float]]) -> str:
    wide, narrow = (results[setting][0] for setting in SETTINGS)
    sums: Counter[str] = Counter()
    rows = []
    for c, count in found.items():
        cells = []
        for part in PARTS:
            times = {
                "AVX-512": wide[str(c)][part][AS_IT_IS],
                "AVX2": narrow[str(c)][part][AS_IT_IS],
                "product": _best(wide[str(c)][part])[1],
                "product under AVX2": _best(narrow[str(c)][part])[1],
            }
            times["AVX-512, the faster"] = min(times["AVX-512"], times["product"])
            times["AVX2, the faster"] = min(times["AVX2"], times["product under AVX2"])
            form, product = _best(wide[str(c)][part])
            cells += [_ms(times["AVX-512"]), _ms(times["AVX2"]), f"{_ms(product)} {form}" if form else "–"]
            for name, value in times.items():
                sums[name] += value * count if value < float("inf") else 0.0
        rows.append([str(c), str(count), *cells])
    head = ["convolution", "times"]
    head += [f"{part}: {what}" for part in PARTS for what in ("AVX-512", "AVX2", "product, AVX-512")]
    totals = [
        [name, f"{sums[name] * 1e3:.0f} ms", f"{sums[name] / sums['AVX2']:.2f}"]
        for name in ("AVX-512", "AVX2", "AVX-512, the faster", "AVX2, the faster")
    ]
    totals += [
        [f"a whole step, {setting}", f"{seconds * 1e3:.0f} ms", f"{seconds / results['AVX2'][1]:.2f}"]
        for setting, (_, seconds) in results.items()
    ]
    return "\n".join(
        [NOTES, "", *table(head, rows), "", SUMS, "", *table(["all convolutions of a step", "time", "by AVX2"], totals)]
    )


def _best(times: Mapping[str, float]) -> tuple[str, float]:
    """The fastest product and its time."""
    products = {form: seconds for form, seconds in times.items() if form != AS_IT_IS}
    return min(products.items(), key=lambda item: item[1], default=("", float("inf")))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}" if seconds < SLOW else f"{seconds * 1e3:.0f}"


NOTES = f"""\
Milliseconds of each distinct convolution of resnet50 (MindCV, batch {BATCH}, {PIXELS}x{PIXELS}), and of its gradients
by the input and by the weights. *AVX-512*: no setting; *AVX2*: `ONEDNN_MAX_CPU_ISA=AVX2`, as sessions set it.
*product*: the fastest of the products that compute the same. *columns*: `Im2Col` or `Col2Im` and a convolution of one
point; *shifted*: the sum of nine convolutions of one point of shifted images; *matrix*: `MatMul` between transposes.
Half of what three of a kernel take longer than one, the median of {TURNS} turns; above {SLOW * 1e3:.0f} ms, one run.
Differences below 5 ms are mostly noise, and some are negative."""
SUMS = """\
The sums, each convolution as often as the step has it. *the faster*: of the convolution and its product, for each by
itself, which no rewrite can beat."""


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        path = Path(sys.argv[2])
        print(json.dumps([measured(convolutions(path)), step_seconds(path)]))
        sys.stdout.flush()
        os._exit(0)
    print(run())


if __name__ == "__main__":
    main()
