"""A fact about primitives stands once: no two collections of primitives in the code say the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from boost_compile.ir.core.primitives import PRIMITIVES, Facts, Family, named

ROOT = Path(__file__).parents[1]
TABLE = "ir/core/primitives/"
STRUCTURE = named(Family.ORDER, Family.TUPLE, Family.CLOSURE)
"""The syntax of graphs: to ask whether a node is a Depend states no fact."""
KNOWN = {name for name, known in PRIMITIVES.items() if replace(known, samples="", linear=()) != Facts()} - STRUCTURE
"""Not those of which the table says nothing but how they treat samples, and what they are linear in."""
ALIKE, SHARE = 3, 0.6
"""A collection says what a family says, or another collection, if they share so many primitives (of a family of two:
both), and this share of the family, or of the smaller collection."""

ON_ITS_OWN = {
    "ir/formats/onnx/rules/elementwise.py:TABLE": "operators of ONNX that are called as their primitive is",
    "ir/proof/numbers.py:_interpreted": "what a primitive is in a prime field, each a rule of its own",
    "ir/proof/numbers.py:_logic": "what a primitive is in a prime field, each a rule of its own",
    "ir/proof/numbers.py:_REARRANGES": "what a primitive is in a prime field, each a rule of its own",
    "passes/data_parallel/flags.py:sum_flags": "two ways to read the device's flag, each a case of its own",
    "passes/legalize/legalize.py:_STATUS": "what one rule replaces: who reads the device's flag, clears it, makes it",
}
"""Collections that hold most of a family, or of another collection, and state another fact. Say why."""


@dataclass
class Statement:
    """What one assignment or function names. ``rules``: of a dictionary, what stands behind each name."""

    where: str
    names: set[str] = field(default_factory=set)
    rules: set[tuple[str, str]] = field(default_factory=set)


def statements(source: str, path: str) -> Iterator[Statement]:
    """The primitives that each assignment at top level, each collection in a function, and the comparisons of each
    function name; two at least."""
    tree = ast.parse(source)
    found = []
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and isinstance(target, ast.Name):
            found.append(_collected(node.value, f"{path}:{target.id}"))
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        compared = Statement(f"{path}:{function.name}")
        for node in ast.walk(function):
            match node:
                case ast.Compare(ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant() as name]):
                    compared.names |= _names([name])
                case ast.Set() | ast.Tuple() | ast.List() | ast.Dict():
                    found.append(_collected(node, f"{path}:{function.name}"))
        if len(compared.names) >= ALIKE:  # two are often two cases
            found.append(compared)
    return (statement for statement in found if len(statement.names) > 1)


def _collected(value: ast.expr, where: str) -> Statement:
    found = Statement(where)
    for node in ast.walk(value):
        match node:
            case ast.Dict(keys=keys, values=values):
                found.names |= _names(keys)
                pairs = zip(keys, values, strict=True)
                found.rules |= {(name, ast.unparse(rule)) for key, rule in pairs for name in _names([key])}
            case ast.Set(elts=elements) | ast.Tuple(elts=elements) | ast.List(elts=elements):
                found.names |= _names(elements)
    return found


def _names(nodes: Sequence[ast.expr | None]) -> set[str]:
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)} & KNOWN


def twice(found: list[Statement]) -> Iterator[str]:
    """Who says what the table says, or what another one says."""
    families = {f: (named(f), named(f, in_place=True)) for f in Family if f is not Family.OTHER}
    plain = [s for s in found if not s.rules and s.where not in ON_ITS_OWN]
    for statement in plain:
        for family, either in families.items():
            most = ((len(m), len(statement.names & m)) for m in either if m.isdisjoint(STRUCTURE))
            if any(shared >= max(min(ALIKE, size), SHARE * size, 2) for size, shared in most):
                yield f"{statement.where} restates {family.name}: ask the table"
    for a, b in combinations(plain, 2):
        shared = len(a.names & b.names)
        if shared >= max(ALIKE, SHARE * min(len(a.names), len(b.names))):
            yield f"{a.where} and {b.where} share {', '.join(sorted(a.names & b.names))}"
    for a, b in combinations([s for s in found if s.rules], 2):
        agreed = {name for name, rule in a.rules & b.rules if not rule.isidentifier()}  # functions may be called alike
        if len(agreed) > 1:
            yield f"{a.where} and {b.where} have the same rules for {', '.join(sorted(agreed))}"


def test_no_collection_of_primitives_says_what_another_one_says() -> None:
    found: list[Statement] = []
    for part in ("ir", "passes", "runtime", "tools", "boost_compile"):
        for path in sorted((ROOT / part).rglob("*.py")):
            where = path.relative_to(ROOT).as_posix()
            if not where.startswith(TABLE):
                found += statements(path.read_text(encoding="utf-8"), where)
    assert len(found) > 40
    assert not list(twice(found))
    assert ON_ITS_OWN.keys() <= {statement.where for statement in found}, "leave out what is gone"


def test_the_walk_finds_second_statements() -> None:
    def said(source: str) -> list[str]:
        return list(twice(list(statements(source, "f.py"))))

    assert said('A = frozenset({"RealDiv", "Div", "Divs"})') == ["f.py:A restates QUOTIENT: ask the table"]
    assert said('def f(n):\n  return n.op.name == "RealDiv" or n.op.name == "Div" or "Divs" == n.op.name') == []
    assert said('def f(n):\n  return n == "MatMul" or n == "Mm" or n == "BatchMatMul"')
    assert said('def f(n):\n  return n in ("Mul", "Muls")') == ["f.py:f restates PRODUCT: ask the table"]
    assert said('A = {"Sqrt", "Add", "Assign"}\nB = ["Sqrt", "Assign", "Add", "Select"]')
    assert said('A = {"BatchNorm": 5, "BatchNormExt": 5}\nB = {"BatchNorm": 5, "BatchNormExt": 5}')
    assert not said('A = {"BatchNorm": 5, "BatchNormExt": 5}\nB = {"BatchNorm": 4, "BatchNormExt": 4}')
    assert not said('A = {"Depend", "MakeTuple", "TupleGetItem"}\nB = {"Depend", "MakeTuple", "TupleGetItem"}')
