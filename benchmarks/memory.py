"""Memory of training on CPU: what a process grows by, next to the estimate of ``boost-inspect --memory``.

Each row is a process of its own: MindSpore is loaded, its device set, and the resident memory read; then it loads a
compiled program and trains some cycles, and the growth is the peak resident memory (``VmHWM``) minus that.

    python -m benchmarks.memory cycles        # the peak of a cycle over 4 micro-batches of B, beside steps at B and 4·B
    python -m benchmarks.memory estimates     # growth, measured and estimated
    python -m benchmarks.memory activations   # growth from a small batch to a large one, in float32 and mixed precision
    python -m benchmarks.memory steps         # how long a step takes at the large batch, in float32 and mixed precision

Names of networks behind the part leave out the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.machine import kept, peak_resident
from benchmarks.tables import ROOT, table

MB = 1 << 20
CYCLES = 3
ACCUMULATE = "gradient-accumulation{steps=4}"
PIPELINES = {
    "plain": "", "accumulated": ACCUMULATE, "half precision": "mixed-precision{level=O2,loss_scale=false}",
}  # fmt: skip
ESTIMATED = (
    ("deep_mlp", (256, 2048)),
    ("deep_mlp_recomputed", (2048,)),
    ("mlp", (32,)),
    ("lenet_bn", (32, 256)),
    ("resnet18", (8, 32, 128)),
    ("mobilenet_v2", (8, 32)),
    ("vit", (32, 256)),
    ("gpt_medium", (4, 16)),
    ("lstm", (512,)),
)
COMPARED = (("resnet18", 32), ("gpt_medium", 4))
GROWING = (
    ("deep_mlp", 256, 2048), ("resnet18", 32, 128), ("mobilenet_v2", 8, 32), ("vit", 32, 256), ("vit_deep", 16, 64),
    ("gpt_medium", 4, 16),
)  # fmt: skip
PRECISIONS = ("", PIPELINES["half precision"], "mixed-precision{level=O2,loss_scale=false,saved=half}")


def resident() -> int:
    """Bytes of this process in memory now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmRSS in /proc/self/status: this benchmark needs Linux")


def child(path: str) -> None:
    """Trains a program in this process and prints, as JSON, what it had in memory before and at most."""
    import mindspore

    import boost_compile as bc

    mindspore.set_device("CPU")
    before = resident()
    program = bc.load(path)
    session = bc.Session(program)
    rng = np.random.default_rng(0)
    for _ in range(CYCLES * session.cycle_length):
        batch = [random_values(rng, value.type) for value in session.consumer.inputs]
        _ = session.step(*batch).loss
    state = sum(v.nbytes for v in program.state.values())
    gradients = sum(v.nbytes for v in program.state.values() if v.role == "weight" and v.trainable)
    print(json.dumps({"before": before, "peak": peak_resident(), "state": state, "gradients": gradients}))


def random_values(rng, type_):  # type: ignore[no-untyped-def]
    if type_.dtype.is_float:
        return rng.standard_normal(type_.shape, np.float32).astype(type_.dtype.value, copy=False)
    return rng.integers(0, 4, type_.shape).astype(type_.dtype.value)


def measure(path: Path, pipeline: str) -> dict[str, int]:
    """What :func:`child` found in a new process, for a file behind a pipeline."""
    import boost_compile as bc

    with tempfile.TemporaryDirectory() as folder:
        if pipeline:
            program = Path(folder) / "compiled.boost"
            bc.compile(bc.load(str(path)), pipeline).save(program)
            path = program
        command = [sys.executable, "-m", "benchmarks.memory", "--child", str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def export_at(name: str, size: int, folder: Path) -> Path:
    """The training cell of a case of the zoo at a batch size, in a process of its own."""
    path = folder / f"{name}_{size}.mindir"
    if not path.exists():
        command = [sys.executable, "-m", "benchmarks.memory", "--export", name, str(size), str(folder)]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return path


def _export(name: str, size: int, folder: Path) -> None:
    from benchmarks.networks import NETWORKS
    from tests.networks import CASES, export

    case = NETWORKS.get(name) or CASES[name]
    export(replace(case, name=f"{name}_{size}", batch_size=size), folder)


def estimated(path: Path, pipeline: str) -> int:
    """The estimate of ``boost-inspect --memory``, in bytes."""
    from boost_compile.runtime.engine.footprint import footprint

    import boost_compile as bc

    program = bc.load(str(path))
    return footprint(bc.compile(program, pipeline) if pipeline else program).total


def _estimates(folder: Path, only: Sequence[str]) -> list[Sequence[str]]:
    rows = []
    for name, sizes in ESTIMATED:
        for size in sizes if not only or name in only else ():
            path = export_at(name, size, folder)
            for kind, pipeline in PIPELINES.items():
                found, guess = kept(f"{path.stem} {pipeline}", measure, path, pipeline), estimated(path, pipeline)
                grown = found["peak"] - found["before"]
                off = f"{100 * (guess / grown - 1):+.0f} %"
                rows.append([f"{name}, {kind}", str(size), f"{grown / MB:.0f}", f"{guess / MB:.0f}", off])
                print(rows[-1], file=sys.stderr)
    return rows


def _activations(folder: Path, only: Sequence[str]) -> list[Sequence[str]]:
    """Weights and code do not depend on the batch, so what a process grows by from one batch to another does not hold
    them."""
    rows = []
    for name, small, large in GROWING:
        if only and name not in only:
            continue
        grown = [kept(f"activations {name} {pipeline}", _grown, name, small, large, pipeline, folder)
                 for pipeline in PRECISIONS]  # fmt: skip
        shares = [f"{bytes_ / MB:.0f} ({bytes_ / grown[0]:.2f})" for bytes_ in grown[1:]]
        rows.append([name, f"{small} to {large}", f"{grown[0] / MB:.0f}", *shares])
        print(rows[-1], file=sys.stderr)
    return rows


def _grown(name: str, small: int, large: int, pipeline: str, folder: Path) -> int:
    """Bytes by which the peak of a process is higher with the large batch."""
    few, many = (measure(export_at(name, size, folder), pipeline) for size in (small, large))
    return many["peak"] - many["before"] - few["peak"] + few["before"]


def _steps(folder: Path, only: Sequence[str]) -> list[Sequence[str]]:
    rows = []
    for name, _, size in GROWING:
        if only and name not in only:
            continue
        command = [sys.executable, "-m", "benchmarks.memory", "--turns", str(export_at(name, size, folder))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        plain, *others = json.loads(done.stdout.splitlines()[-1])
        times = (f"{1000 * seconds:.0f} ({seconds / plain:.2f})" for seconds in others)
        rows.append([name, str(size), f"{1000 * plain:.0f}", *times])
        print(rows[-1], file=sys.stderr)
    return rows


def _turns(path: str) -> None:
    """Prints, as JSON, the seconds of a step in each precision, all in this process."""
    import boost_compile as bc
    from benchmarks.sessions import medians_of_steps

    source = bc.load(path)
    programs = [bc.compile(source, pipeline) if pipeline else source for pipeline in PRECISIONS]
    print(json.dumps(medians_of_steps([bc.Session(program, seed=1, device="CPU") for program in programs])))


def _comparison(folder: Path, only: Sequence[str]) -> list[Sequence[str]]:
    rows = []
    for name, size in COMPARED:
        if only and name not in only:
            continue
        path, big = export_at(name, size, folder), export_at(name, 4 * size, folder)
        plain, cycle, large = measure(path, ""), measure(path, ACCUMULATE), measure(big, "")
        goal = 1.05 * (plain["peak"] + plain["gradients"])
        peaks = [f"{x / MB:.0f}" for x in (plain["peak"], large["peak"], plain["gradients"], goal, cycle["peak"])]
        rows.append([name, str(size), *peaks])
        print(rows[-1], file=sys.stderr)
    return rows


def run(part: str, *only: str) -> str:
    heads, rows = {
        "cycles": (["network", "B", "step at B", "step at 4·B", "gradients", "goal", "cycle of 4·B"], _comparison),
        "steps": (["network", "batch", "float32, ms", "O2", "O2, saved=half"], _steps),
        "activations": (["network", "batch", "float32", "O2", "O2, saved=half"], _activations),
        "estimates": (["program", "batch", "measured", "estimated", "off by"], _estimates),
    }[part]
    with tempfile.TemporaryDirectory() as scratch:
        return "\n".join(table(heads, rows(Path(scratch), only)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    elif sys.argv[1:2] == ["--turns"]:
        _turns(sys.argv[2])
    elif sys.argv[1:2] == ["--export"]:
        _export(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        print(run(*sys.argv[1:]))
