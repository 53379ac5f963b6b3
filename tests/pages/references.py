"""What a page names in backquotes: files, commands, options, targets of make, passes, names of Python.

:func:`problem` says what is wrong with one of them, or nothing. No MindSpore is needed: the source is read.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from boost_compile.passes.framework.options import declared_options
from boost_compile.passes.framework.registry import REGISTRY

import boost_compile as bc
from tests.advice import COMMANDS

ROOT = Path(__file__).parents[2]
FOLDERS = ["ir", "passes", "runtime", "tools", "tests", "docs", "benchmarks", "examples", "boost_compile"]
PRODUCT = ["ir", "passes", "runtime", "tools", "boost_compile"]
FILE = re.compile(r"[\w./*-]+\.(?:py|md|ir|txt|toml|css|yml)")
TO_BE_MADE = {"tests/passes/scale_gradients.ir", "mine.toml"}
"""Files that a page tells its reader to make."""
PLACEHOLDER = re.compile(r"[A-Z]+")
FOREIGN_OPTIONS = {"--join", "--cluster_time_out", "--node_rank", "--worker_num", "--local_worker_num"}
"""Options of msrun."""
WRITTEN = re.compile(r"[\w.-]+\.(?:json|safetensors|log|mindir|boost|npz|npy|ckpt|onnx|data|html|svg|csv)")
"""What a command or a user writes."""
OTHERS = {
    "X_graph.mindir": "the exporter's name of a large file",
    "conv2-Conv2d_2": "a scope of the page's network",
    "dispatch_threads_num": "MindSpore's C++",
    "mobilenet_v2_100": "mindcv's",
    "nohup": "the shell's",
    "worker_0.log": "msrun's",
}
"""Names that stand neither in the code nor in MindSpore's Python, and whose they are."""
INSTANCES = {"session": "Session", "program": "Program", "plan": "Plan", "graph": "Graph", "result": "PassResult"}
"""The class of what pages call so."""
FOREIGN = re.compile(r"(mindspore|ms|nn|ops|onnx|os|sys|functools|communication|config|self|loss|x)\b")
"""How names begin that are not this project's; MindSpore's are looked up by tests/test_pages.py."""


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of all that stands in backquotes, but for blocks of code."""
    text = page.read_text(encoding="utf-8")
    blank = [
        re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE),  # blocks are run: test_pages.py
        re.compile(r"(?<=\n\n) {4}.*(?:\n+ {4}.*)*"),
    ]
    for block in blank:
        text = block.sub(lambda m: "\n" * m[0].count("\n"), text)
    for found in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
        yield text.count("\n", 0, found.start()) + 1, found[1].replace("\n", " ").replace("\\|", "|")


def problem(text: str) -> str | None:
    """What is wrong with a name in backquotes; None if it is right, or no name at all."""
    if text in OTHERS:
        return None
    if text.startswith("make "):
        return None if text.split()[1] in targets() else "no target of the Makefile"
    if text.startswith(("boost-", "python ", "-")):
        return _command(text)
    path, _, test = text.partition("::")
    if FILE.fullmatch(path) or (path.rstrip("/").split("/")[0] in FOLDERS and re.fullmatch(r"[\w./*-]+", path)):
        return _file(path) or (_test(path, test) if test else None)
    if text.startswith("::"):
        return None if any(text[2:] in words_of(file) for file in ROOT.glob("tests/**/test_*.py")) else "no test"
    if re.fullmatch(r"[a-z-]+\?|(?:[a-z][a-z0-9-]*\{[^}]*\},?)+(?:[a-z-]+)?", text):
        return _pipeline(text)
    if option := re.fullmatch(r"([a-z_]+)=([\w.-]+)?", text):
        return _option(option[1], option[2])
    if WRITTEN.fullmatch(text):
        stem = re.split(r"[.-]", text)[0]
        return _known([stem])
    if FOREIGN.match(text):
        return None
    if called := re.fullmatch(r"([A-Za-z]\w*(?:\.[a-z_]\w*)*)\((.*)\)", text):
        return _python(called[1]) or _keywords(called[1], called[2])
    if re.fullmatch(r"[A-Za-z]\w*(?:\.[A-Za-z_]\w*)+", text):
        return _python(text)
    if re.fullmatch(r"[A-Za-z_][\w-]*", text):
        return _known([text])
    return None


# -- commands ----------------------------------------------------------------------------------------------------------


@cache
def targets() -> set[str]:
    """The targets of the Makefile that its head lists."""
    return set(re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())  # type: ignore[index]


def options_of(command: click.Command) -> set[str]:
    return {text for each in command.params for text in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}


def _command(text: str) -> str | None:
    words = shlex.split(text)
    if words[:2] == ["python", "-m"]:
        module = ROOT.joinpath(*(part for part in words[2].split(".") if not PLACEHOLDER.fullmatch(part)))
        installed = "." not in words[2] and find_spec(words[2])
        return None if module.is_dir() or module.with_suffix(".py").is_file() or installed else f"no module {words[2]}"
    if words[0] == "python":
        return None if words[1] == "-c" or (ROOT / words[1]).is_file() else f"no file {words[1]}"
    asked = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    if words[0] in COMMANDS:
        there = options_of(COMMANDS[words[0]])
    elif words[0].startswith("boost-"):
        return f"no command {words[0]}" if words[0] != "boost-compile[model-explorer]" else None
    elif words[0].startswith("--") or words[0] == "-o":
        there = FOREIGN_OPTIONS | set().union(*map(options_of, COMMANDS.values())) | _options_of_scripts()
    else:
        return None
    return f"no option {', '.join(sorted(asked - there))}" if asked - there else None


@cache
def _options_of_scripts() -> set[str]:
    """What the scripts of this repository take: ``python -m tests.fuzz --plain``."""
    scripts = [*ROOT.glob("tests/*/__main__.py"), *ROOT.glob("benchmarks/*.py"), *ROOT.glob("docs/make_*.py")]
    return {option for path in scripts for option in re.findall(r'"(--[a-z-]+)"', path.read_text(encoding="utf-8"))}


# -- files -------------------------------------------------------------------------------------------------------------


def below(folder: Path) -> list[Path]:
    """All files and folders in a folder. Unlike `rglob`, this walks on where one goes away in the meantime."""
    return [Path(here, name) for here, *held in os.walk(folder) for names in held for name in names]


@cache
def files() -> frozenset[str]:
    """The names of all files below the folders of the project, and at its root."""
    inside = [path.name for folder in FOLDERS for path in below(ROOT / folder)]
    return frozenset([*inside, *(path.name for path in ROOT.iterdir())])


def _file(path: str) -> str | None:
    if path in TO_BE_MADE or (PLACEHOLDER.fullmatch(path.partition(".")[0]) and path not in files()):
        return None
    if "/" in path:
        return None if list(ROOT.glob(path.rstrip("/"))) else "no such path"
    return None if path in files() or list(ROOT.glob(path)) else "no file of this name"


def _test(path: str, test: str) -> str | None:
    return None if f"def {test}(" in (ROOT / path).read_text(encoding="utf-8") else f"no test {test}"


# -- passes ------------------------------------------------------------------------------------------------------------


def _pipeline(text: str) -> str | None:
    for name, inside in re.findall(r"([a-z][a-z0-9-]*)\??(?:\{([^}]*)\})?", text):
        if name not in REGISTRY:  # a loss or an optimizer of boost-compile
            if _known([name]):
                return f"no pass, loss or optimizer {name}"
            continue
        # What stands in brackets is a value.
        named = re.findall(r"(?:^|,)\s*([a-z_]+)", re.sub(r"\[[^]]*\]", "", inside))
        unknown = set(named) - declared_options(REGISTRY[name]).keys()
        if unknown:
            return f"{name} has no option {', '.join(sorted(unknown))}"
    return None


def _option(name: str, value: str | None) -> str | None:
    """``split=fused``: an option of a pass that takes this value, or the name of an argument."""
    declared = [declared_options(cls)[name] for cls in REGISTRY.values() if name in declared_options(cls)]
    choices = {choice for option in declared for choice in option.choices}
    if value and all(option.choices for option in declared) and choices and value not in choices:
        return f"no pass takes {name}={value}"
    return None if declared else _known([name])


# -- Python ------------------------------------------------------------------------------------------------------------


def _python(text: str) -> str | None:
    """A dotted name: of ``bc``, of a module, of a class of this project, or a key of a document."""
    first, *rest = text.split(".")
    if first in ("bc", "boost_compile", *PRODUCT):
        return _module(rest if first in ("bc", "boost_compile") else [first, *rest])
    name = INSTANCES.get(first, first)
    if name in classes() and rest:
        return None if rest[0] in classes()[name] else f"{name} has no {rest[0]}"
    return _known([first, *rest])


def _module(parts: list[str]) -> str | None:
    here: Any = bc
    for k, part in enumerate(parts):
        module = ROOT.joinpath(*parts[: k + 1])
        if module.is_dir() or module.with_suffix(".py").is_file():
            here = module
        elif isinstance(here, Path):
            file = here / "__init__.py" if here.is_dir() else here.with_suffix(".py")
            return None if part in words_of(file) else f"{here.relative_to(ROOT)} has no {part}"
        elif not hasattr(here, part):
            return f"{'.'.join(['bc', *parts[:k]])} has no {part}"
        else:
            here = getattr(here, part)
    return None


def _keywords(function: str, arguments: str) -> str | None:
    """The arguments by keyword of a call of a public function, class or method."""
    first, _, member = function.rpartition(".")
    owner = {"": bc, "bc": bc}.get(first, getattr(bc, INSTANCES.get(first, ""), None))
    called = getattr(owner, member, None) or getattr(bc.Session, member, None)
    if not callable(called):
        return None
    known = inspect.signature(called).parameters
    inner = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")
    while inner.search(arguments):
        arguments = inner.sub("", arguments)
    unknown = {name for name in re.findall(r"(?:^|, )(\w+)=", arguments) if name not in known}
    return f"{function} takes no {', '.join(sorted(unknown))}" if unknown else None


@cache
def classes() -> dict[str, set[str]]:
    """The classes of the product by name, each with its members and those of the classes that it derives from."""
    found: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    members = {n for statement in node.body for n in _bound(statement)}
                    members |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                    found.setdefault(node.name, set()).update(members)
                    bases.setdefault(node.name, []).extend(ast.unparse(base) for base in node.bases)
    for name, above in bases.items():
        for base in above:
            found[name] |= found.get(base, set())
    return found


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


# -- words -------------------------------------------------------------------------------------------------------------


@cache
def words_of(path: Path) -> frozenset[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    return frozenset(re.findall(r"\w+", text)) | frozenset(re.findall(r"[\w-]+", text))


OWN = [Path(__file__), ROOT / "tests/test_page_names.py"]
"""What names things that do not exist."""


TEXTS = (".py", ".txt", ".ir", ".js", ".html")


@cache
def words() -> frozenset[str]:
    """Every word of the project's code, tests and settings, pages left out."""
    found: set[str] = set()
    for folder in FOLDERS:
        for path in below(ROOT / folder):
            if path.suffix in TEXTS and path.parent.name != "corpus" and path not in OWN:
                found |= words_of(path)
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        found |= words_of(ROOT / name)
    return frozenset(found)


@cache
def words_of_mindspore() -> frozenset[str]:
    """What MindSpore's own Python names, where pages speak of it; read, not imported."""
    spec = find_spec("mindspore")
    folder = Path(str(spec.origin)).parent if spec else ROOT / "nowhere"
    paths = [
        *folder.glob("boost/*.py"),
        *folder.glob("nn/**/*.py"),
        *folder.glob("runtime/*.py"),
        folder / "context.py",
    ]
    return frozenset().union(*map(words_of, paths))


def _known(names: list[str]) -> str | None:
    unknown = [name for name in names if name not in words() and name not in OTHERS]
    unknown = [name for name in unknown if name not in words_of_mindspore()]
    return f"{', '.join(unknown)}: nowhere in the code" if unknown else None
