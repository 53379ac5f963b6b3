"""The grammar of generated source. It is written from files that nobody vouches for, so before it is run, or handed to
a user, it is parsed and held against a list of what the writer has reason to write; anything else is a bug of ours, or
an attack on it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from .literals import DTYPES

MAKERS = frozenset({"primitive", "function", "tensor", "word"})
NUMBERS = frozenset({"INF", "NAN"})


class UnsafeSource(AssertionError):
    """The text holds a construct that generated source never needs."""


def check_source(source: str, prelude: str) -> None:
    """Raises UnsafeSource unless ``source`` is ``prelude`` and then classes of the kind that the writer writes."""
    fixed = ast.parse(prelude).body
    body = ast.parse(source).body
    if [ast.dump(node) for node in body[: len(fixed)]] != [ast.dump(node) for node in fixed]:
        raise UnsafeSource("the fixed beginning was changed")
    known = {n.name for n in fixed if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    classes: set[str] = set()
    for node in body[len(fixed) :]:
        if not isinstance(node, ast.ClassDef) or node.name in classes | known:
            raise UnsafeSource(f"line {node.lineno}: not a new class")
        _check_class(node, classes)
        classes.add(node.name)


def _check_class(node: ast.ClassDef, classes: set[str]) -> None:
    plain = not (node.decorator_list or node.keywords) and [ast.unparse(b) for b in node.bases] == ["nn.Cell"]
    methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
    if not plain or len(methods) != len(node.body) or [m.name for m in methods] != ["__init__", "construct"]:
        raise UnsafeSource(f"line {node.lineno}: class '{node.name}' is not a plain Cell")
    names = [[arg.arg for arg in method.args.args] for method in methods]
    for method, given in zip(methods, names, strict=True):
        a = method.args
        extra = (*a.posonlyargs, *a.kwonlyargs, *a.defaults, *a.kw_defaults, a.vararg, a.kwarg)
        if any(extra) or method.decorator_list or method.returns or any(arg.annotation for arg in a.args):
            raise UnsafeSource(f"line {method.lineno}: more than plain arguments")
        if given[:1] != ["self"] or (method.name == "__init__" and given[1:] != ["state"]):
            raise UnsafeSource(f"line {method.lineno}: not a method")
    for statement in methods[0].body:
        _check_field(statement, classes)
    local = set(names[1][1:])
    for name in local:
        _identifier(name, methods[1])
    _check_construct(methods[1].body, local)


def _identifier(name: str, at: ast.AST) -> None:
    if "__" in name or not name.isascii():
        raise UnsafeSource(f"line {getattr(at, 'lineno', 0)}: name '{name}'")


def _check_field(node: ast.stmt, classes: set[str]) -> None:
    """A field is a literal, a piece of state, a primitive, or another cell with the state."""
    if isinstance(node, ast.Expr) and ast.unparse(node) == "super().__init__(auto_prefix=False)":
        return
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not _is_field(node.targets[0]):
        raise UnsafeSource(f"line {node.lineno}: not the assignment of a field")
    made = node.value
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id in classes:
        if ast.unparse(made) != f"{made.func.id}(state)":
            raise UnsafeSource(f"line {node.lineno}: more than the state")
    elif isinstance(made, ast.Subscript) and ast.unparse(made.value) == "state":
        _every(made.slice, lambda here: [] if isinstance(here, ast.Constant) and type(here.value) is str else None)
    else:
        _every(made, _literal_parts)


def _literal_parts(here: ast.expr) -> list[ast.expr] | None:
    """The parts of what may stand in a literal; None of what may not."""
    if isinstance(here, ast.Constant) and isinstance(here.value, (bool, int, float, str, type(None))):
        return []
    if isinstance(here, (ast.Tuple, ast.List)):
        return here.elts
    if isinstance(here, ast.Dict) and all(isinstance(k, ast.Constant) for k in here.keys):
        return here.values
    if isinstance(here, ast.UnaryOp) and isinstance(here.op, ast.USub):
        return [here.operand]
    if isinstance(here, ast.Name) and here.id in NUMBERS:
        return []
    if isinstance(here, ast.Attribute) and isinstance(here.value, ast.Name) and here.value.id == "ms":
        return [] if here.attr in DTYPES.values() else None
    if isinstance(here, ast.Call) and (ast.unparse(here.func) in MAKERS or ast.unparse(here.func) == "state.constant"):
        for keyword in here.keywords:
            _identifier(keyword.arg or "__", here)
        return [*here.args, *(keyword.value for keyword in here.keywords)]
    return None


def _check_construct(body: Iterable[ast.stmt], local: set[str]) -> None:
    def parts(here: ast.expr) -> list[ast.expr] | None:
        if isinstance(here, ast.Constant) and isinstance(here.value, (bool, int, float, type(None))):
            return []
        if (isinstance(here, ast.Name) and here.id in local) or _is_field(here):
            return []
        if isinstance(here, (ast.Tuple, ast.List)):
            return here.elts
        if isinstance(here, ast.Subscript):
            return [here.value, here.slice]
        if isinstance(here, ast.UnaryOp) and isinstance(here.op, ast.USub):
            return [here.operand]
        return here.args if isinstance(here, ast.Call) and not here.keywords and _is_field(here.func) else None

    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            _every(node.value, parts)
            target = node.targets[0]
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if not isinstance(name, ast.Name):
                    raise UnsafeSource(f"line {node.lineno}: not a local variable")
                _identifier(name.id, node)
                local.add(name.id)
        elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or (
            isinstance(node, ast.Return) and node.value is not None
        ):
            _every(node.value, parts)
        elif isinstance(node, (ast.If, ast.While)):
            _every(node.test, parts)
            _check_construct((*node.body, *node.orelse), local)
        else:
            raise UnsafeSource(f"line {node.lineno}: a statement of kind {type(node).__name__}")


def _every(root: ast.expr, parts: Callable[[ast.expr], list[ast.expr] | None]) -> None:
    """UnsafeSource where ``parts`` does not know an expression, or one in it."""
    stack = [root]
    while stack:
        here = stack.pop()
        inner = parts(here)
        if inner is None:
            raise UnsafeSource(f"line {here.lineno}: '{ast.unparse(here)[:80]}'")
        stack.extend(inner)


def _is_field(node: ast.expr) -> bool:
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id != "self":
        return False
    _identifier(node.attr, node)
    return True
