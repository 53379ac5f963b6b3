"""The tables of shared names (ir/core/names.py, passes/step/names.py) against the code that writes and reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from boost_compile.ir.core import names as core
from boost_compile.ir.core.names import Name
from boost_compile.passes.step import names as step

ROOT = Path(__file__).parent.parent
TABLES = {"ir/core/names.py": core, "passes/step/names.py": step}
NAMES = [*core.NAMES, *step.NAMES]
RESULTS = frozenset(n.text for n in NAMES if n.kind == "result")
RESULT_SYMBOLS = frozenset(s for s, v in vars(core).items() if isinstance(v, str) and v in RESULTS) | {"loss_scale_of"}
ALONE = frozenset({"adapter", "stage", "gradient", "local", "fusion", "centralize"}) | RESULTS
"""Words of the language too, which stand for other things elsewhere: they are names only where a mapping of names is
asked for them."""
MAPPINGS = frozenset({"marks", "info", "primal", "state", "outputs", "named_results", "with_results", "_as", "_value"})


@cache
def trees() -> dict[str, ast.Module]:
    """The modules that hold none of the tables, by path."""
    files = [f for room in ("ir", "passes", "runtime", "tools") for f in (ROOT / room).rglob("*.py")]
    paths = {file.relative_to(ROOT).as_posix(): file for file in files}
    return {path: ast.parse(file.read_text()) for path, file in paths.items() if path not in TABLES}


def parents(tree: ast.AST) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """Every node with those that it stands in, outermost first."""
    stack: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while stack:
        node, above = stack.pop()
        yield node, above
        stack.extend((child, [*above, node]) for child in ast.iter_child_nodes(node))


def writes(node: ast.AST, above: list[ast.AST]) -> bool:
    """Whether a name is used to write: as the key of a mapping that is made, as the target of an assignment, as the
    name of state that is added, or as that of a result (the first of a pair, or what is assigned)."""
    place = node
    is_result = getattr(node, "id", "") in RESULT_SYMBOLS
    for outer in reversed(above):
        if isinstance(outer, ast.Compare):
            return False
        if is_result and isinstance(outer, ast.Tuple) and len(outer.elts) == 2:
            return place is outer.elts[0]
        if is_result and isinstance(outer, (ast.Assign, ast.Return)):
            return place is outer.value
        if isinstance(outer, ast.Dict):
            return place in outer.keys
        if isinstance(outer, ast.Subscript):
            return place is outer.slice and isinstance(outer.ctx, ast.Store)
        if isinstance(outer, ast.Call):
            called = outer.func.attr if isinstance(outer.func, ast.Attribute) else getattr(outer.func, "id", "")
            if place is not outer.func:
                return called == "add_state" or (called == "declare_tally" and place is outer.args[1])
        place = outer
    return False


@cache
def uses() -> dict[str, tuple[set[str], set[str]]]:
    """The modules that write and that read each name, by the symbol that stands for it."""
    symbols = {symbol for module in TABLES.values() for symbol in vars(module) if symbol.isupper() or "_of" in symbol}
    found: dict[str, tuple[set[str], set[str]]] = {symbol: (set(), set()) for symbol in symbols}
    for path, tree in trees().items():
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == "names"
            for alias in node.names
        } & symbols
        for node, above in parents(tree) if imported else ():
            if isinstance(node, ast.Name) and node.id in imported:
                module = path.removesuffix(".py").replace("/", ".")
                found[node.id][0 if path < "runtime" and writes(node, above) else 1].add(module)
    return found


def symbol_of(name: Name) -> str:
    module = core if name in core.NAMES else step
    if "<k>" in name.text:
        return next(s for s, v in vars(module).items() if s.endswith("_of") and v("<k>") == name.text)
    return next(s for s, v in vars(module).items() if isinstance(v, str) and v == name.text and s.isupper())


def test_every_name_has_a_row() -> None:
    for module in TABLES.values():
        constants = {v for k, v in vars(module).items() if k.isupper() and isinstance(v, str)}
        assert constants == {n.text for n in module.NAMES if "<k>" not in n.text}
    assert len({(n.kind, n.text) for n in NAMES}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.text)
def test_who_writes_and_who_reads(name: Name) -> None:
    writers, readers = uses()[symbol_of(name)]
    assert (name.writers, name.readers) == (tuple(sorted(writers)), tuple(sorted(readers)))
    assert len(writers | readers) > 1, "a name of one module stands in that module"


def test_a_name_is_spelled_in_its_table_alone() -> None:
    texts = {n.text for n in NAMES}
    spelled: list[str] = []
    for path, tree in trees().items():
        for node, above in parents(tree):
            if not (isinstance(node, ast.Constant) and node.value in texts):
                continue
            asked = next((n for n in reversed(above) if isinstance(n, (ast.Call, ast.Compare, ast.Subscript))), None)
            mappings = {getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(asked)} if asked else set()
            if node.value not in ALONE or mappings & MAPPINGS:
                spelled.append(f"{path}:{node.lineno}: {node.value!r}")
    assert not spelled, "take these from the table of names"
