"""What errors advise exists at the door that shows them: a command never names a Python argument, nor an option that
it lacks without saying whose it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from boost_compile.ir.core.errors import Error

from .advice import OPTIONS, wrong_advice

ROOT = Path(__file__).parents[1]
OWN_FOLDERS = {
    "tools/compile": ["boost-compile"], "tools/budget": ["boost-compile"], "tools/inspect": ["boost-inspect"],
    "tools/views/": ["boost-inspect"], "tools/run": ["boost-run"], "tools/training/": ["boost-run"],
    "tools/jobs/": ["boost-run"], "tools/verify": ["boost-verify"], "tools/prove": ["boost-prove"],
    "tools/proof/": ["boost-prove"],    "tools/reduce": ["boost-reduce"],
    "tools/reduction/": ["boost-reduce"], "tools/outputs": ["boost-compile", "boost-inspect", "boost-reduce"],
}  # fmt: skip
"""Files whose errors one command alone shows; those of the others may come out of any."""


def error_classes() -> set[str]:
    pending, names = [Error, click.UsageError, click.BadParameter], {"fail", "Ended"}
    while pending:
        cls = pending.pop()
        names.add(cls.__name__)
        pending += cls.__subclasses__()
    return names


def rendered(node: ast.expr) -> str:
    """A text as far as the source spells it out; what is computed is ``X``."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values)
    if isinstance(node, ast.BinOp):
        return rendered(node.left) + rendered(node.right)
    return "X"


def messages() -> Iterator[tuple[str, str, str]]:
    """(where, what the commands show, what Python shows) of each error that the source raises."""
    known = error_classes()
    for folder in ("ir", "passes", "runtime", "tools", "boost_compile"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            where = str(path.relative_to(ROOT))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if name not in known:
                    continue
                given = {k.arg: rendered(k.value) for k in node.keywords if k.arg}
                message = " ".join(rendered(a) for a in node.args)
                yield f"{where}:{node.lineno}", f"{message} {given.get('command', '')}", given.get("python", "")


def test_the_commands_can_do_what_their_errors_advise():
    seen, wrong, both = 0, [], 0
    for where, text, python in messages():
        own = next((doors for start, doors in OWN_FOLDERS.items() if where.startswith(start)), list(OPTIONS))
        # The options of passes are written like Python's arguments.
        of_passes = where.startswith(("passes/", "tools/verification/"))
        faults = [f for f in wrong_advice(text, own) if not (of_passes and f.endswith("is Python"))]
        wrong += [f"{where}: {fault}: {text.strip()}" for fault in faults]
        both += bool(python)
        seen += 1
    assert not wrong, "\n".join(wrong)
    assert seen > 400
    assert both > 8


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("strict=False skips them", "strict=False is Python"),
        ("set allow_nonfinite=True", "is Python"),
        ("use session.step()", "is Python"),
        ("choose another with -o", "-o is no option of boost-run"),
        ("boost-compile --partial", "--partial is no option of boost-compile"),
    ],
)
def test_wrong_advice_is_found(text: str, fault: str):
    assert any(fault in found for found in wrong_advice(text, ["boost-run"]))


def test_each_door_shows_its_own_words():
    error = Error("what and where.", python="x=1 helps", command="--data helps")
    assert str(error) == "what and where. x=1 helps"
    assert error.at_command() == "what and where. --data helps"
    assert str(Error("only this")) == Error("only this").at_command() == "only this"
    assert error.behind("f.onnx: ", Error).at_command() == "f.onnx: what and where. --data helps"
