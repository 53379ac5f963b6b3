"""Runs ONNX's own tests of the supported operators and writes docs/onnx-operators.md:

python -m tests.ir.formats.onnx.report
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from pathlib import Path

import onnx

from tests.ir.formats.onnx.backend import Outcome, cases, judge, judged, operator

DOCUMENT = Path(__file__).parents[4] / "docs" / "onnx-operators.md"


NOTES = {
    "training_dropout": "it wants the random numbers of one generator",
    "fullymasked": "rows that a mask excludes as a whole: MindSpore's Softmax of minus infinity is not NaN",
    "boolmask_nan_robustness": "rows that a mask excludes as a whole: MindSpore's Softmax of minus infinity is not NaN",
}
"""Reasons that no message says, by part of a test's name."""


def reason(name: str, outcome: Outcome) -> str:
    """The part of a message that says why, without folders and names of nodes."""
    text = outcome.reason
    noted = [note for part, note in NOTES.items() if part in name]
    if noted:
        return f"{noted[0]} ({text})"
    found = re.search(r"translation to MindSpore's primitives:\s+\S+ '[^']*': ([^\n]*)", text)
    if found:
        return found.group(1)
    text = re.sub(r"\S*/case\.onnx: ", "", text).splitlines()[0]
    kernel = re.search(r"has no CPU kernel for primitive (\w+)", text)
    return f"MindSpore has no CPU kernel for {kernel.group(1)} of this type" if kernel else text[:140]


def main() -> None:
    by_operator: dict[str, list[str]] = defaultdict(list)
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases().items():
            if judged(case):
                outcomes[name] = judge(case, Path(folder))
                by_operator[operator(case)].append(name)
    passed = sum(o.status == "passed" for o in outcomes.values())
    bound = sum(o.status == "passed" and bool(o.bound) for o in outcomes.values())
    lines = [
        "# ONNX operators",
        "",
        f"{passed} of ONNX's own {len(outcomes)} float32 forward tests of the supported operators pass",
        f"(onnx {onnx.__version__}, opset 11 and newer, MindSpore on CPU). In {bound} of them, inputs that MindSpore",
        "wants constant were made constant. `python -m tests.ir.formats.onnx.report` writes this page.",
        "An operator that is not named has no rule, or no such test; ONNX's own functions are written out.",
        "",
        "All tests of these operators pass:",
        "",
    ]
    failing = {op for op, names in by_operator.items() if any(outcomes[n].status != "passed" for n in names)}
    lines.append(", ".join(sorted(set(by_operator) - failing)) + ".")
    lines += ["", "| operator | passed | of |", "|---|---|---|"]
    for op in sorted(failing):
        names = by_operator[op]
        lines.append(f"| {op} | {sum(outcomes[n].status == 'passed' for n in names)} | {len(names)} |")
    lines += ["", "## What does not pass", "", "| test | outcome | reason |", "|---|---|---|"]
    for name, outcome in outcomes.items():
        if outcome.status != "passed":
            said = reason(name, outcome).replace("|", "\\|")
            lines.append(f"| {name} | {outcome.status} | {said} |")
    DOCUMENT.write_text("\n".join(lines) + "\n")
    print(passed, len(outcomes))


if __name__ == "__main__":
    main()
