"""The grammar of generated source. It is written from files that nobody vouches for, so before it is run, or handed to
a user, it is parsed and held against a list of what the writer has reason to write; anything else is a bug of ours, or
an attack on it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from .model import DTYPES

MAKERS = frozenset({"primitive", "function", "tensor", "word"})
TYPES = frozenset(f"ms.{name}" for name in DTYPES.values())
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
    for method in methods:
        a = method.args
        extra = (*a.posonlyargs, *a.kwonlyargs, *a.defaults, *a.kw_defaults, a.vararg, a.kwarg)
        if any(extra) or method.decorator_list or method.returns or any(arg.annotation for arg in a.args):
            raise UnsafeSource(f"line {method.lineno}: more than plain arguments")
        names = [arg.arg for arg in a.args]
        if names[:1] != ["self"]:
            raise UnsafeSource(f"line {method.lineno}: not a method")
        _Method(method.name == "__init__", set(names[1:]), classes).statements(method.body)


class _Method:
    def __init__(self, is_init: bool, names: set[str], classes: set[str]):
        self.is_init = is_init
        self.names = names
        self.classes = classes
        for name in names:
            self._identifier(name, 0)

    def _identifier(self, name: str, line: int) -> None:
        if "__" in name or not name.isascii():
            raise UnsafeSource(f"line {line}: name '{name}'")

    def statements(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            if self.is_init:
                self._initial(node)
            else:
                self._constructing(node)

    def _initial(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and ast.unparse(node) == "super().__init__(auto_prefix=False)":
            return
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not self._is_field(node.targets[0]):
            raise UnsafeSource(f"line {node.lineno}: not the assignment of a field")
        self._made(node.value)

    def _made(self, node: ast.expr) -> None:
        """The values of a field: a literal, a piece of state, a primitive, another cell."""
        if not isinstance(node, ast.Call):
            self._literal(node)
            return
        if isinstance(node.func, ast.Name) and node.func.id in MAKERS | self.classes:
            for value in (*node.args, *(k.value for k in node.keywords)):
                self._literal(value)
            for keyword in node.keywords:
                self._identifier(keyword.arg or "__", node.lineno)
        else:
            self._literal(node)

    def _literal(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str, type(None))):
            return
        if isinstance(node, (ast.Tuple, ast.List)):
            for element in node.elts:
                self._literal(element)
        elif isinstance(node, ast.Dict) and all(isinstance(k, ast.Constant) for k in node.keys):
            for value in node.values:
                self._literal(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self._literal(node.operand)
        elif (isinstance(node, ast.Name) and node.id in self.names | NUMBERS) or ast.unparse(node) in TYPES:
            return
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and self._is_given(node.left, "prefix"):
            self._literal(node.right)
        elif isinstance(node, ast.Subscript) and self._is_given(node.value, "state"):
            self._literal(node.slice)
        elif isinstance(node, ast.Call) and self._is_data(node):
            for value in node.args:
                self._literal(value)
        else:
            raise UnsafeSource(f"line {node.lineno}: '{ast.unparse(node)[:80]}' is no literal")

    def _is_given(self, node: ast.expr, name: str) -> bool:
        return isinstance(node, ast.Name) and node.id == name and name in self.names

    def _is_data(self, node: ast.Call) -> bool:
        name = ast.unparse(node.func)
        held = name == "state.constant" and "state" in self.names
        return not node.keywords and (held or name in ("tensor", "word"))

    # -- construct -------------------------------------------------------------------------------------------

    def _constructing(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._expression(node.value)
            target = node.targets[0]
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if not isinstance(name, ast.Name):
                    raise UnsafeSource(f"line {node.lineno}: not a local variable")
                self._identifier(name.id, node.lineno)
                self.names.add(name.id)
        elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or (
            isinstance(node, ast.Return) and node.value is not None
        ):
            self._expression(node.value)
        elif isinstance(node, (ast.If, ast.While)):
            self._expression(node.test)
            self.statements((*node.body, *node.orelse))
        else:
            raise UnsafeSource(f"line {node.lineno}: a statement of kind {type(node).__name__}")

    def _expression(self, node: ast.expr) -> None:
        stack: list[ast.expr] = [node]
        while stack:
            here = stack.pop()
            if isinstance(here, ast.Constant) and isinstance(here.value, (bool, int, float, type(None))):
                continue
            if (isinstance(here, ast.Name) and here.id in self.names) or self._is_field(here):
                continue
            if isinstance(here, (ast.Tuple, ast.List)):
                stack.extend(here.elts)
            elif isinstance(here, ast.Subscript):
                stack.extend((here.value, here.slice))
            elif isinstance(here, ast.UnaryOp) and isinstance(here.op, ast.USub):
                stack.append(here.operand)
            elif isinstance(here, ast.Call) and not here.keywords and self._is_field(here.func):
                stack.extend(here.args)
            else:
                raise UnsafeSource(f"line {here.lineno}: '{ast.unparse(here)[:80]}'")

    def _is_field(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id != "self":
            return False
        self._identifier(node.attr, node.lineno)
        return True
