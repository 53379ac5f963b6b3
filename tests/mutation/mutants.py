"""The mutants of a module: every small way to break it, as changes of its syntax tree."""

from __future__ import annotations

import ast
import copy
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Pow: ast.Mult,
}  # fmt: skip
ORDER = {"sorted", "reversed"}
"""Calls that only give an order: a mutant leaves them out."""
SYMMETRIC = {"max", "min"}
"""Calls to which the order of their arguments means nothing."""


@dataclass(frozen=True)
class Mutant:
    """`where` names the function, `before` and `after` are one statement (of a compound one its head), which stands in
    `lines`; None for what runs when the module is imported."""

    path: Path
    line: int
    lines: range | None
    where: str
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.path}:{self.line} in {self.where}\n  - {self.before}\n  + {self.after}"


Change = Callable[[Any], ast.AST]
"""Gives what a node becomes: itself, changed, or another."""


def sample(path: Path, count: int, seed: int) -> tuple[list[Mutant], int]:
    """`count` mutants of the module at `path` (all if it has fewer), drawn by `seed`, and how many it has."""
    tree = ast.parse(path.read_text())
    for place, node in enumerate(ast.walk(tree)):
        node.place = place  # type: ignore[attr-defined]
    sites = [(*found, change) for found in _mutable(tree) for change in _changes(found[0])]
    random.Random(seed).shuffle(sites)
    drawn = (_mutant(path, tree, *site) for site in sites)
    chosen = list(itertools.islice((mutant for mutant in drawn if mutant.before != mutant.after), count))
    return sorted(chosen, key=lambda mutant: mutant.line), len(sites)


def _mutant(path: Path, tree: ast.Module, node: Any, where: str, statement: Any, change: Change) -> Mutant:
    mutated = copy.deepcopy(tree)
    index: dict[int, ast.AST] = {n.place: n for n in ast.walk(mutated)}  # type: ignore[attr-defined]
    old = index[node.place]
    new = change(old)
    if new is not old:
        new.place = node.place  # type: ignore[attr-defined]
        _replace(mutated, old, new)
    ast.fix_missing_locations(mutated)
    after = next(n for n in ast.walk(mutated) if getattr(n, "place", None) == statement.place)
    line = getattr(node, "lineno", statement.lineno)
    return Mutant(path, line, _lines(tree, statement), where, _head(statement), _head(after), mutated)


def _lines(tree: ast.Module, statement: ast.stmt) -> range | None:
    """Those of a statement's head; None outside of functions."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    if not any(inner is statement for f in functions for part in f.body for inner in ast.walk(part)):
        return None
    body = getattr(statement, "body", None)
    return range(statement.lineno, body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1)


def _mutable(tree: ast.Module) -> Iterator[tuple[ast.AST, str, ast.stmt]]:
    """Nodes that may be changed, with the function and the statement they stand in. Left out: annotations, docstrings,
    what is said in messages, imports."""

    def walk(node: ast.AST, where: str, statement: ast.stmt | None) -> Iterator[tuple[ast.AST, str, ast.stmt]]:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Assert)) or _asserts(node):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            where = f"{where}.{node.name}" if where != "module" else node.name
        if isinstance(node, ast.stmt):
            statement = node
        if statement is not None:
            yield node, where, statement
        if isinstance(node, ast.Raise):
            return
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, where, statement)

    yield from walk(tree, "module", None)


def _changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield lambda n: _set(n, ops=[COMPARISONS[type(op)]()])
        case ast.BoolOp():
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield lambda n: _set(n, op=other())
            for i in range(len(node.values)):
                yield lambda n, i=i: _without(n, "values", i) if len(n.values) > 2 else n.values[1 - i]
        case ast.UnaryOp(op=ast.Not()):
            yield lambda n: n.operand
        case ast.If() | ast.While() | ast.IfExp():
            if not isinstance(node.test, (ast.Compare, ast.UnaryOp, ast.BoolOp)):
                yield lambda n: _set(n, test=ast.UnaryOp(ast.Not(), n.test))
        case ast.comprehension() if node.ifs:
            for i in range(len(node.ifs)):
                yield lambda n, i=i: _without(n, "ifs", i)
        case ast.Constant(value=bool()):
            yield lambda n: _set(n, value=not n.value)
        case ast.Constant(value=int() | float()):
            yield lambda n: _set(n, value=n.value + 1)
            if node.value:
                yield lambda n: _set(n, value=n.value - 1)
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            if not any(isinstance(n, ast.JoinedStr) or _is_text(n) for n in ast.walk(node)):
                yield lambda n: _set(n, op=ARITHMETIC[type(n.op)]())
        case ast.Call(func=ast.Name(id=name), args=[_]) if name in ORDER:
            yield lambda n: ast.Call(ast.Name("list", ast.Load()), n.args, [])
        case ast.Call():
            symmetric = isinstance(node.func, ast.Name) and node.func.id in SYMMETRIC
            if len(node.args) > 1 and not symmetric and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
                yield lambda n: _set(n, args=[n.args[1], n.args[0], *n.args[2:]])
            for i, keyword in enumerate(node.keywords):
                if _asserts(keyword) or (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
                    continue  # False, None, "": most often what is taken anyway
                yield lambda n, i=i: _without(n, "keywords", i)
        case ast.Dict() if len(node.keys) > 1:
            for i in (0, len(node.keys) - 1):
                yield lambda n, i=i: _without(_without(n, "keys", i), "values", i)
        case ast.Set() | ast.Tuple(ctx=ast.Load()) | ast.List(ctx=ast.Load()) if len(node.elts) > 1:
            if all(isinstance(e, ast.Constant) for e in node.elts):
                for i in (0, len(node.elts) - 1):
                    yield lambda n, i=i: _without(n, "elts", i)
        case ast.Continue() | ast.Break() | ast.Raise() | ast.Delete() | ast.Return(value=None):
            yield lambda n: ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield lambda n: ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield lambda n: ast.Pass()
    if isinstance(node, ast.AugAssign):
        yield lambda n: ast.Pass()


def _asserts(node: ast.AST) -> bool:
    """``zip(…, strict=True)``"""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _set(node: ast.AST, **fields: object) -> ast.AST:
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def _without(node: ast.AST, field: str, index: int) -> ast.AST:
    del getattr(node, field)[index]
    return node


def _replace(tree: ast.Module, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if child is old else child for child in value]


def _head(statement: ast.AST) -> str:
    """The text of a statement; of one that holds others, without these."""
    if isinstance(getattr(statement, "body", None), list):
        statement = copy.copy(statement)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            if getattr(statement, name, None):
                setattr(statement, name, [ast.Expr(ast.Constant(...))] if name == "body" else [])
    return ast.unparse(statement)


def statements(path: Path) -> set[tuple[str, str]]:
    """(function, text) of every statement of a module, as mutants name them."""
    return {(where, _head(statement)) for _, where, statement in _mutable(ast.parse(path.read_text()))}
