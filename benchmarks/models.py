"""What compiling real networks costs, beside what nobody can do without and what MindSpore does itself.

    python -m benchmarks.models        prints the tables

The networks are exported once (tests/networks). Each is measured in processes of its own, as processor time of the
whole process: the sha256 of the source, which a second thread computes while the graph is read, counts.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from benchmarks.machine import child_environment, kept
from benchmarks.startup import COMMAND, COPY, WATCHED, Times, seconds
from benchmarks.tables import ROOT, table

NETWORKS = ("lenet_bn", "gpt", "vit", "resnet18", "resnet50")
ACCUMULATE = "gradient-accumulation{steps=4}"
PASSES = (
    "dead-code-elimination", "common-subexpression-elimination", "effect-chain-minimization", "gradient-accumulation",
)  # fmt: skip
OWN = (
    "read", "verify", "copy", *PASSES, "default pipeline, verified", "accumulation over 4, verified",
    "write a program",
)  # fmt: skip
FLOOR = ("protobuf: parse and serialize", "copy of the bytes in memory", "sha256 of the file")
REPETITIONS = 7
COMMANDS = 5
NATIVE = 5


def _best_of(prepare: Callable[[], Any], act: Callable[[Any], object], repetitions: int = REPETITIONS) -> list[float]:
    found = []
    for i in range(repetitions + 1):
        argument = prepare()
        gc.collect()
        start = process_time()
        result = act(argument)
        passed = process_time() - start
        del argument, result
        if i:  # the first one imports what it needs
            found.append(passed)
    return found


def _own(path: str, scratch: str) -> dict[str, Any]:
    from boost_compile.ir.verify.verifier import verify
    from boost_compile.passes.framework.manager import compile_program
    from boost_compile.passes.framework.pipeline import parse_pipeline
    from boost_compile.tools.cli import read_program
    from boost_compile.tools.compile import DEFAULT_PIPELINE

    gc.disable()
    program = read_program(path)
    rewritten = compile_program(program, ACCUMULATE)
    found = {
        "read": _best_of(lambda: path, read_program),
        "verify": _best_of(lambda: program, verify),
        "copy": _best_of(lambda: program, lambda p: p.copy()),
        "default pipeline, verified": _best_of(lambda: program, lambda p: compile_program(p, DEFAULT_PIPELINE)),
        "accumulation over 4, verified": _best_of(lambda: program, lambda p: compile_program(p, ACCUMULATE)),
        "write a program": _best_of(lambda: rewritten, lambda p: p.save(str(Path(scratch) / "out.boost"))),
    }
    for name in PASSES:
        (pass_,) = parse_pipeline(name)
        found[name] = _best_of(program.copy, pass_.run)
    return {"nodes": sum(len(g) for g in program.graphs["step"].all_graphs()), "seconds": found}


def _floor(path: str) -> dict[str, list[float]]:
    import hashlib

    from boost_compile.ir.formats.mindir.schema import ModelProto

    data = Path(path).read_bytes()
    return {
        FLOOR[0]: _best_of(lambda: data, lambda d: ModelProto.FromString(d).SerializeToString()),
        FLOOR[1]: _best_of(lambda: data, bytearray),
        FLOOR[2]: _best_of(lambda: data, lambda d: hashlib.sha256(d).digest()),
    }


def _mindspore(name: str, path: str) -> dict[str, float]:
    """Processor time of reading the file, and of the first step less that of a later one: MindSpore's compilation."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"  # where AVX-512 convolutions are slow, the step would hide the rest
    import mindspore as ms
    from mindspore import nn

    from tests.networks import CASES

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    batch = [ms.Tensor(array) for array in CASES[name].batches(1)[0]]
    start = process_time()
    graph = ms.load(path)
    loaded = process_time()
    cell = nn.GraphCell(graph)
    steps = []
    for _ in range(4):
        begun = process_time()
        result = cell(*batch)
        (result[0] if isinstance(result, tuple) else result).asnumpy()
        steps.append(process_time() - begun)
    return {"load": loaded - start, "compile": steps[0] - min(steps[1:])}


def _child(*arguments: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.models", "--child", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=child_environment(), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _in_child(what: str, *arguments: str) -> object:
    if what == "own":
        return _own(*arguments)
    return _floor(*arguments) if what == "floor" else _mindspore(*arguments)


def _ms(times: list[float]) -> str:
    low, middle, high = (f(times) * 1000 for f in (min, median, max))
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def _command(path: Path, scratch: str) -> tuple[Times, Times, int]:
    """Whole runs of `boost-compile --accumulate 4`, copies of the file, and the peak of the resident set."""
    arguments = [str(path), "--accumulate", "4", "-q", "-o", str(Path(scratch) / "command.boost")]
    whole = seconds([*COMMAND, *arguments], COMMANDS)
    copy = seconds([sys.executable, "-c", COPY, str(path), str(Path(scratch) / "copied")], COMMANDS)
    done = subprocess.run([*WATCHED, *arguments], cwd=ROOT, env=child_environment(), stderr=subprocess.PIPE, check=True)
    return whole, copy, int(done.stderr.split()[0])


def _native(name: str, path: str) -> dict[str, float]:
    """Medians of processes that load and compile once each: one alone may take half as long again."""
    found = [_child("mindspore", name, path) for _ in range(NATIVE)]
    return {what: median(times[what] for times in found) for what in found[0]}


def _measured(name: str, path: Path, scratch: str) -> list[Any]:
    whole, copy, peak = _command(path, scratch)
    return [
        _child("own", str(path), scratch),
        _child("floor", str(path)),
        _native(name, str(path)),
        [whole.wall, whole.processor, copy.wall, copy.processor, peak],
    ]


def run(networks: tuple[str, ...] = NETWORKS) -> str:
    from tests.conftest import export_once, zoo_folder

    own: dict[str, Any] = {}
    floor: dict[str, Any] = {}
    native: dict[str, Any] = {}
    commands = []
    for name in networks:
        print(f"  {name}", file=sys.stderr, flush=True)
        path = export_once(name, zoo_folder())
        with tempfile.TemporaryDirectory() as scratch:
            measured = kept(f"models {name}", _measured, name, path, scratch)
        own[name], floor[name], native[name], (*times, peak) = measured
        whole, copy = Times(*times[:2]), Times(*times[2:])
        size = path.stat().st_size
        goals = [
            median(a) / (1.2 * median(b) + 0.5) for a, b in ((whole.wall, copy.wall), (whole.processor, copy.processor))
        ]
        commands.append(
            [
                f"{name}, {size / 1e6:.1f} MB", *whole.cells(), *copy.cells(),
                " / ".join(f"{goal:.2f}" for goal in goals), f"{peak / 1e6:.0f} MB",
            ]
        )  # fmt: skip
    head = ["", *(f"{name}<br>{own[name]['nodes']:,} nodes" for name in networks)]
    rows = []
    for step in OWN:
        cells = []
        for name in networks:
            times = own[name]["seconds"][step]
            cells.append(f"{_ms(times)}<br>{median(times) * 1e6 / own[name]['nodes']:.1f} µs a node")
        rows.append([step, *cells])
    rows += [[f"*{step}*", *(_ms(floor[name][step]) for name in networks)] for step in FLOOR]
    rows.append(["*`mindspore.load`*", *(f"{native[name]['load'] * 1000:.0f}" for name in networks)])
    rows.append(["*MindSpore's compilation*", *(f"{native[name]['compile'] * 1000:.0f}" for name in networks)])
    for title, step in (("default", OWN[-3]), ("accumulation", OWN[-2])):
        parts = [median(own[name]["seconds"][step]) / native[name]["compile"] for name in networks]
        rows.append([f"{title} pipeline as a part of it", *(f"{part:.1%}" for part in parts)])
    columns = ["", "command, wall", "processor", "copy, wall", "processor", "of the goal", "peak memory"]
    return "\n".join([STEPS, "", *table(head, rows), "", WHOLE, "", *table(columns, commands)])


STEPS = """\
Milliseconds of processor time, median (range). A pass alone works on a copy; a pipeline includes the copy and the
verification before and after it. Rows in italics are not boost-compile: the floor, and MindSpore on the same
file (its compilation is its first step less a later one, the median of five processes). Goals for resnet50: the default
pipeline at most 3 % of MindSpore's compilation, accumulation 7 %."""
WHOLE = """\
The whole command, `boost-compile --accumulate 4`, and copying the file (read, write, fsync). Goal: 1.2 copies and half
a second; the column *of the goal*, by the clock / by processor time, is at most 1 where it is met. Memory: the peak of
all that the process holds, mapped pages included; goal: 0.3 of the file, above its mapping. (Newer kernels of Linux map
2 MB of a file where one byte is looked at.)"""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(_in_child(*sys.argv[2:])))
        sys.stdout.flush()
        os._exit(0)
    print(run(tuple(sys.argv[1:]) or NETWORKS))
