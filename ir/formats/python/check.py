"""The grammar of generated source. It is written from files that nobody vouches for, so before it is run, or handed to
a user, it is parsed and held against a list of what the writer has reason to write; anything else is a bug of ours, or
an attack on it."""

from __future__ import annotations

import ast
from typing import NoReturn

from .spelling import DTYPES

BEGIN = "\n\nclass Network(nn.Cell):\n    def __init__(self, state):\n        super().__init__(auto_prefix=False)\n"
"""What stands between the prelude and the first field."""
_KINDS = (
    ast.arguments, ast.arg, ast.Assign, ast.Expr, ast.Return, ast.If, ast.While, ast.Tuple, ast.List, ast.Dict,
    ast.UnaryOp, ast.USub, ast.Load, ast.Store,
)  # fmt: skip
_MAKERS = ("primitive", "function", "tensor", "word")


class UnsafeSource(AssertionError):
    """The text holds a construct that generated source never needs."""


def check_source(source: str, prelude: str) -> None:
    """Raises UnsafeSource unless ``source`` is ``prelude`` and then a class of the kind that the writer writes."""
    if not source.startswith(prelude + BEGIN):
        raise UnsafeSource("the fixed beginning was changed")
    try:
        (network,) = ast.parse(source[len(prelude) :]).body
    except (SyntaxError, ValueError) as error:
        raise UnsafeSource(f"not one class: {error}") from None
    assert isinstance(network, ast.ClassDef)
    for i, method in enumerate(network.body):
        if not isinstance(method, ast.FunctionDef) or method.decorator_list or method.returns:
            _refuse(method)
        names = [argument.arg for argument in method.args.args]
        if ast.unparse(method.args) != ", ".join(names) or names[:1] != ["self"] or (i and not _is_plain(method.name)):
            _refuse(method)
        local = {node.id for node in ast.walk(method) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for statement in method.body[1:] if i == 0 else method.body:
            _check(statement, {*local, *names[1:]} if i else {"INF", "NAN"})


def _check(statement: ast.stmt, local: set[str]) -> None:
    known: set[ast.expr] = set()
    """Names that stand where they may: parts of what has been looked at, for a whole comes before its parts."""
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(value=ast.Name(id="self") as name, attr=attribute) if _is_plain(attribute):
                known.add(name)
            case ast.Attribute(value=ast.Name(id="ms") as name, attr=attribute) if attribute in DTYPES.values():
                known.add(name)
            case ast.Attribute(value=ast.Name(id="state") as name, attr="constant"):
                known.add(name)
            case ast.Subscript(value=ast.Name(id="state") as name, slice=ast.Constant(value=str())):
                known.add(name)
            case ast.Call(func=ast.Name(id=maker) as name, keywords=[]) if maker in _MAKERS:
                known.add(name)
            case ast.Call(func=ast.Attribute(), keywords=[]) | ast.Subscript(ctx=ast.Load()):
                pass
            case ast.Name(id=name) if _is_plain(name) and (node in known or name in local):
                pass
            case ast.Constant(value=bool() | int() | float() | str() | None):
                pass
            case _ if not isinstance(node, _KINDS):
                _refuse(node)


def _is_plain(name: str) -> bool:
    return "__" not in name and name.isascii()


def _refuse(node: ast.AST) -> NoReturn:
    raise UnsafeSource(f"line {getattr(node, 'lineno', 0)}: '{ast.unparse(node)[:80]}'")
