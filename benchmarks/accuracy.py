"""How near compiled accumulation comes to native accumulation, by network, optimizer, cycle length and split.

Writes the table of docs/accuracy.md. Both sides start from the same state and see the same data; the error of a
parameter is its largest difference divided by how far training moved it (tests/compare.py says what is rounding).

    python -m benchmarks.accuracy            # every case that has a CPU kernel: about 20 minutes on 2 cores
    python -m benchmarks.accuracy mlp gpt    # some cases, printed only
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mindspore import nn

import boost_compile as bc
from tests import native
from tests.compare import compare
from tests.conftest import export_once, zoo_folder
from tests.networks import CASES, Case, build

LENGTHS = (1, 2, 4, 5)
CYCLES = 3
DOCUMENT = Path(__file__).parents[1] / "docs" / "accuracy.md"


@dataclass(frozen=True)
class Row:
    """Worst errors after one and after three cycles, and how many parameters agree in every bit after one."""

    case: str
    steps: int
    split: str
    one: float
    three: float
    equal: int
    parameters: int

    def cells(self) -> list[str]:
        return [
            self.case, str(self.steps), self.split, f"{self.one:.1e}" if self.one else "0",
            f"{self.three:.1e}" if self.three else "0", f"{self.equal} of {self.parameters}",
        ]  # fmt: skip


def measure(name: str, lengths: tuple[int, ...] = LENGTHS) -> Iterator[Row]:
    case = CASES[name]
    program = bc.load(export_once(name, zoo_folder()))
    initial = native.initial_state(case)
    for steps in lengths:
        data = case.cycles(CYCLES, steps)
        reference = native.train_accumulated(case, data)
        noise = reference.noise()
        for split in ("apply", "fused"):
            session = bc.Session(bc.compile(program, f"gradient-accumulation{{steps={steps},split={split}}}"))
            states = []
            for cycle in data:
                for batch in cycle:
                    session.step(*batch)
                states.append({k: v for k, v in session.state().items() if k in initial})
            first = compare(states[0], reference.states[0], initial, noise)
            last = compare(states[-1], reference.states[-1], initial, noise)
            yield Row(name, steps, split, first.worst.error, last.worst.error, first.bit_equal, len(first.rows))


def table(rows: list[Row]) -> str:
    head = ["case", "N", "split", "one cycle", "three cycles", "bit-equal after one"]
    lines = [head, ["---"] * len(head), *(r.cells() for r in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def document(rows: list[Row]) -> str:
    import mindspore
    import numpy

    exact = sum(r.equal == r.parameters for r in rows)
    return f"""# Accuracy of gradient accumulation

This page compares compiled accumulation with native MindSpore accumulation: forward and backward by autodiff in one
cell, one optimizer call a cycle on the averaged gradients.
MindSpore {mindspore.__version__} on CPU, numpy {numpy.__version__}.
"One cycle" and "three cycles" are the error of the worst parameter, weights, slots and statistics alike: its largest
difference divided by how far training moved it, beyond one unit in the last place of the stored value. N is the number
of micro-batches. {exact} of {len(rows)} rows are equal in every bit of every parameter after one cycle.

The others are of one case. `mlp_half_weights` has float16 weights, of which one unit in the last place is 5e-4 to 1e-3
of the value; its gradients are added up in float32 here, in float16 natively. Networks with dropout draw other random
numbers and are left out; their tests are statistical.

Repeat with `python -m benchmarks.accuracy`.

{table(rows)}
"""


LEFT_OUT = {"random", "io", "training_cell", "refused"}
"""Cases that have no native accumulation to compare with, or whose random numbers differ."""


def _has_native_accumulation(case: Case) -> bool:
    return not case.tags & LEFT_OUT and type(build(case).train_step) is nn.TrainOneStepCell


def main() -> None:
    chosen = sys.argv[1:]
    names = chosen or [n for n, c in CASES.items() if c.runs_on_cpu and _has_native_accumulation(c)]
    rows: list[Row] = []
    for name in names:
        lengths = LENGTHS if "optimizer" not in CASES[name].tags else (4, 5)
        for row in measure(name, lengths):
            print(" ".join(row.cells()), flush=True)
            rows.append(row)
    if not chosen:
        DOCUMENT.write_text(document(rows))


if __name__ == "__main__":
    main()
