"""How near compiled accumulation comes to native accumulation, by network, optimizer, cycle length and split.

Writes a section of docs/accuracy.md. Both sides start from the same state and see the same data; the error of a
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
HEADING = "\n## Runs of accumulation\n"


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


def section(rows: list[Row]) -> str:
    """What the page says of these rows: the cases whose rows are all equal by name, a table of the others."""
    import mindspore
    import numpy

    exact = sum(r.equal == r.parameters for r in rows)
    unequal = [r for r in rows if r.one or r.three or r.equal != r.parameters]
    differ = {r.case for r in unequal}
    equal = ", ".join(name for name in dict.fromkeys(r.case for r in rows) if name not in differ)
    head = ["case", "N", "split", "one window", "three windows", "bit-equal after one"]
    lines = [head, ["---"] * len(head), *(r.cells() for r in unequal)]
    shown = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"""
MindSpore {mindspore.__version__} on CPU, numpy {numpy.__version__}; N in {", ".join(map(str, LENGTHS))}, both splits.
{exact} of {len(rows)} runs are equal in every bit of every parameter after one window. After three windows these cases
are off by at most one unit in the last place, in all of their runs:

{equal}.

The other runs, by the error of their worst parameter (`mlp_half_weights` has float16 weights, whose gradients are added
up in float32 here and in float16 natively):

{shown}
"""


def write(rows: list[Row]) -> None:
    """Writes the section of the page, whose other sections stay."""
    before, heading, rest = DOCUMENT.read_text(encoding="utf-8").partition(HEADING)
    after = rest.partition("\n## ")[1:]
    DOCUMENT.write_text(before + heading + section(rows) + "".join(after), encoding="utf-8")


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
        write(rows)


if __name__ == "__main__":
    main()
