"""Writes docs/api.md, the public API, from the docstrings.

    python docs/make_api.py            # `--check` writes nothing, and fails where the page is not what it would write

What stands there: the names of ``boost_compile``, and the classes of what they return.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from boost_compile.ir.analysis.compare.difference import ProgramDiff
from boost_compile.ir.analysis.cost.footprint import Footprint
from boost_compile.ir.core.report import Miss, PassResult
from boost_compile.runtime.engine.device_check import DeviceReport
from boost_compile.runtime.evaluation.evaluate import evaluate
from boost_compile.runtime.in_compiler.enabled import Enabled, TakenStep
from boost_compile.runtime.training.fit import fit
from boost_compile.runtime.training.history import Cycle, Epoch, History
from boost_compile.runtime.training.result import StepResult
from boost_compile.tools.budget import Plan
from boost_compile.tools.verification.report import Verification
from docstrings import in_markdown

import boost_compile as bc

PAGE = Path(__file__).parent / "api.md"
FUNCTIONS = [
    "enable",
    "disable",
    "capture",
    "load",
    "compile",
    "verify",
    "prove",
    "differentiate",
    "from_boost_config",
    "plan_memory",
    "memory",
]
FUNCTIONS += ["diff", "evaluation_network", "load_newest", "check_device"]
CLASSES = [bc.Session, bc.Program, bc.Callback, bc.Log, bc.SaveEvery, bc.Shard]
RESULTS = [StepResult, History, Cycle, Epoch, PassResult, Miss, Verification, Plan, Footprint, ProgramDiff]
RESULTS += [DeviceReport, Enabled, TakenStep]
"""What functions and methods return."""

HEAD = """# API

`import boost_compile as bc`. `python docs/make_api.py` writes this page from the docstrings, and a test holds it to
them. Names that it does not list are internal and may change. Every error that a user can cause is a `bc.Error`; its
subclasses stand in `boost_compile.ir.core.errors`. `bc.__version__` is the version, `bc.boost` holds signposts for the
names of `mindspore.boost` ([from-mindspore-boost.md](from-mindspore-boost.md)).
"""
PASSES = """`bc.passes` holds the classes of the passes, for lists of passes. A pipeline names them:
`bc.compile(program, "gradient-accumulation{steps=4},overflow-check")`. [passes.md](passes.md) lists the passes with
their options, and [write-a-pass.md](write-a-pass.md) says how passes of your own join them.
"""


def main() -> None:
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/api.md is not current: python docs/make_api.py writes it anew")
        return
    PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Functions\n"]
    parts += [_function(f"bc.{name}", getattr(bc, name)) for name in FUNCTIONS]
    parts += ["## Classes\n", *(_class(f"bc.{cls.__name__}", cls) for cls in CLASSES)]
    parts += [_class("bc.Error", bc.Error)]
    parts += ["## Results\n", *(_class(cls.__name__, cls) for cls in RESULTS)]
    parts += ["## Passes\n", PASSES]
    return "\n".join(parts).rstrip() + "\n"


# -- entries -----------------------------------------------------------------------------------------------------------


def _function(name: str, function: Callable[..., Any], level: str = "###") -> str:
    return f"{level} `{name}`\n\n`{name}{_signature(function)}`\n\n{prose(function)}\n"


def _class(name: str, cls: type) -> str:
    parts = [f"### `{name}`\n", f"{prose(cls)}\n"]
    if not is_dataclass(cls) and "__init__" in vars(cls) and cls.__init__ is not Exception.__init__:
        parts.insert(1, f"`{cls.__name__}{_signature(cls.__init__)}`\n")
    fields = [f"- `{n}`: `{kind}`" + (f". {text}" if text else "") for n, kind, text in _fields(cls)]
    if fields:
        parts.append("\n".join(fields) + "\n")
    members = {n: value for n, value in vars(cls).items() if not n.startswith("_") and inspect.getdoc(value)}
    for member, value in members.items():
        if inspect.isfunction(value):
            alias = "" if value.__name__ == member else f"\n\nThe same as `{value.__name__}`."
            parts.append(f"#### `{member}`\n\n`{member}{_signature(value)}`{alias or chr(10) * 2 + prose(value)}\n")
        elif isinstance(value, (staticmethod, classmethod)):
            parts.append(_function(member, value.__func__, "####"))
        elif isinstance(value, property) or hasattr(value, "func"):
            getter = value.fget if isinstance(value, property) else value.func
            kind = _text(inspect.signature(getter).return_annotation)
            parts.append(f"#### `{member}`\n\n`{member}: {kind}`\n\n{prose(value)}\n")
    return "\n".join(parts)


def _fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """Public annotated fields of a dataclass, or documented attributes: name, type, the docstring below it."""
    tree = ast.parse(dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for node, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        text = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            text = in_markdown(inspect.cleandoc(below.value.value))
        if not node.target.id.startswith("_"):
            yield node.target.id, ast.unparse(node.annotation), text


# -- text --------------------------------------------------------------------------------------------------------------


def _signature(function: Callable[..., Any]) -> str:
    """As it is written: annotations are the source's own text."""
    signature = inspect.signature(function)
    shown: list[str] = []
    named = False
    for p in signature.parameters.values():
        if p.name == "self":
            continue
        if p.kind is p.VAR_POSITIONAL:
            named = True
        if p.kind is p.KEYWORD_ONLY and not named:
            shown.append("*")
            named = True
        text = ("*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else "") + p.name
        if p.annotation is not p.empty:
            text += f": {_text(p.annotation)}"
        if p.default is not p.empty:
            text += f" = {p.default!r}" if p.annotation is not p.empty else f"={p.default!r}"
        shown.append(text)
    result = signature.return_annotation
    arrow = "" if result in (inspect.Signature.empty, None, "None") else f" -> {_text(result)}"
    return f"({', '.join(shown)}){arrow}"


def _text(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return "Any"
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def prose(thing: Any) -> str:
    """The docstring in Markdown; that of the function itself where a method of its name only refers to it."""
    text = inspect.getdoc(thing) or ""
    if text.rpartition(". ")[2].startswith("See :func:"):
        text = inspect.getdoc({"evaluate": evaluate, "fit": fit}[thing.__name__]) or ""
    return in_markdown(text)


if __name__ == "__main__":
    main()
