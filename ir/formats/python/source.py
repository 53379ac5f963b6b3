"""The text of the module: the class ``Network``, whose ``construct`` has a line for each node. Functions are written
out where they are called: branches as ``if``, loops as ``while``.

It is Python of a narrow kind: see check.py, which every text passes before it is run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from importlib import resources

from ...analysis.functions.calls import Target, reachable_functions, switch_behind, targets, without_tokens
from ...core.attributes import Attribute, TensorValue, bits
from ...core.errors import PassError
from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ...core.op import CALL, Op
from ...core.predicates import is_random
from ...core.primitives import Family, facts
from ...core.primitives.calls import constructor_arguments, handled_operands
from ...core.sites import site
from ...core.types import is_monad
from .check import BEGIN, check_source
from .order import resolved, written_order
from .spelling import DTYPES, Identifiers, bracketed, is_number, is_small, literal

_DEEPEST_CALLS = 40
_MOST_LINES = 100_000
_NOT = "this cannot be written as Python"


@cache
def prelude() -> str:
    """The fixed beginning of every text: imports, how weights are read and primitives made."""
    return (resources.files(__package__) / "prelude.txt").read_text("ascii")


def write_source(graph: Graph) -> tuple[str, list[TensorValue]]:
    """A graph as a class, and the constants that stand in the file of the weights."""
    writer = _Writer()
    names: dict[Value, str] = {v: writer.locals.claim(v.name) for v in graph.inputs if not is_monad(v.type)}
    head = f"    def construct({', '.join(['self', *names.values()])}):"
    result = writer.function(_Function(graph, names))
    lines = [*writer.init, "", head, *writer.lines, f"        return {result}"]
    source = prelude() + BEGIN + "\n".join(lines) + "\n"
    check_source(source, prelude())
    return source, [value for _, value in writer.constants.values()]


class _Function:
    """A function where it is written out. ``names``: what stands for its values. ``loop``: the head of the loop that it
    is the body of, where it ends with the next round."""

    def __init__(self, graph: Graph, names: dict[Value, str], loop: _Function | None = None, depth: int = 0):
        if depth > _DEEPEST_CALLS:
            raise PassError(f"functions call each other more than {_DEEPEST_CALLS} deep, up to '{graph.name}'")
        self.graph, self.names, self.loop, self.depth = graph, names, loop, depth
        self.order, self.copies = written_order(graph)
        self.result = resolved(graph.result, self.copies)


class _Writer:
    """Grows the fields of the class, and the lines of ``construct``."""

    def __init__(self) -> None:
        self.fields, self.locals = Identifiers(), Identifiers()
        self.init: list[str] = []
        self.lines: list[str] = []
        self.indent = " " * 8
        self.constants: dict[Hashable, tuple[int, TensorValue]] = {}
        self.made: dict[Hashable, str] = {}
        self.parameters: set[str] = set()

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)
        if len(self.lines) > _MOST_LINES:
            raise PassError(f"its functions, written out where they are called, take more than {_MOST_LINES:,} lines")

    def field(self, hint: str, text: str, key: Hashable = None) -> str:
        """An attribute, made once for each text (and ``key``)."""
        if (text, key) not in self.made:
            self.made[text, key] = name = f"self.{self.fields.claim(hint)}"
            self.init.append(f"        {name} = {text}")
        return self.made[text, key]

    def literal(self, value: Attribute, where: str) -> str:
        if not isinstance(value, TensorValue) or is_small(value):
            return literal(value, where)
        return f"state.constant({self.constants.setdefault(bits(value), (len(self.constants), value))[0]})"

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def value(self, f: _Function, value: Value, user: str) -> str:
        """What stands for a value."""
        value = resolved(value, f.copies)
        if value in f.names:
            return f.names[value]
        if isinstance(value, State):
            name = self.field(value.name.rsplit(".", 1)[-1], f"state[{value.name!a}]")
            self.parameters.add(name)
            return name
        if isinstance(value, GraphRef):
            raise PassError(f"{user}: function '{value.name}' is passed on as a value; {_NOT}")
        if not isinstance(value, Constant):
            raise PassError(f"{user}: operand %{value.name} is not known where it is used")
        text = self.literal(value.value, user)
        return text if is_number(value.value) else self.field("constant", text)

    def nodes(self, f: _Function, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.op is CALL:
                f.names[node] = self.call(f, node)
                continue
            text = self.text(f, node)
            if any(not is_monad(user.type) for user in node.uses) or node is f.graph.result:
                f.names[node] = self.locals.claim(node.op.instance or node.op.name)
                text = f"{f.names[node]} = {text}"
            self.line(text)

    def text(self, f: _Function, node: Node) -> str:
        where, op = site(node), node.op
        given = without_tokens(node.operands)
        if node in f.copies:
            return self.field("tensor_move", "primitive('TensorMove')") + f"({self.value(f, given[0], where)})"
        if op.name == "TupleGetItem":
            index = given[1].value if isinstance(given[1], Constant) else None
            if not isinstance(index, int):
                raise PassError(f"{where}: takes an element whose index is computed; {_NOT}")
            return f"{self.value(f, given[0], where)}[{index}]"
        if op.name == "MakeTuple":
            return bracketed([self.value(f, v, where) for v in given])
        if facts(op).family is Family.CODE:
            raise PassError(f"{where}: primitive {op.name} runs code from the file; it is not written as Python")
        names = constructor_arguments().get(op.name, ()) if op.kind == 2 else ()
        first = max(len(given) - len(names), 0)
        last = [v.value for v in given[first:] if isinstance(v, Constant)]
        if len(last) < len(names):
            raise PassError(f"{where}: {op.name} needs {', '.join(names)} as constants at the end of its operands, "
                            "which MindSpore takes when the primitive is made")  # fmt: skip
        made = self.primitive(op, dict(zip(names, last, strict=True)), where)
        own = self.field(op.instance or op.name, made, node if is_random(node) else None)  # each its own draws
        return f"{own}({', '.join(self.operand(f, op, i, v, where) for i, v in enumerate(given[:first]))})"

    def operand(self, f: _Function, op: Op, position: int, value: Value, where: str) -> str:
        handled = handled_operands().get((op.name, position)) if op.kind == 2 else None
        number = value.value if isinstance(value, Constant) else None
        if handled is None or not isinstance(number, int):
            return self.value(f, value, where)
        kind, name = handled
        if kind != "enum" and number not in DTYPES:
            raise PassError(f"{where}: {number} is not a type of a tensor")
        text = f"word({op.name!a}, {name!a}, {number})" if kind == "enum" else f"ms.{DTYPES[number]}"
        return self.field(name, text)

    def primitive(self, op: Op, arguments: Mapping[str, Attribute], where: str) -> str:
        attributes = {k: v for k, v in op.attributes.items() if op.kind != 2 or not k.startswith("side_effect_")}
        texts = [f"{op.name!a}"]
        for values in [arguments, attributes] if op.kind == 2 else [attributes]:
            entries = (f"{k!a}: {self.literal(v, f'{where}, {k!r}')}" for k, v in values.items())
            texts.append(f"{{{', '.join(entries)}}}")
        while texts[-1] == "{}":
            texts.pop()
        return f"{'function' if op.kind == 2 else 'primitive'}({', '.join(texts)})"

    # -- functions -----------------------------------------------------------------------------------------------------

    def function(self, f: _Function) -> str:
        """Writes a function out; what stands for its result, "" where it goes on with the next round of its loop."""
        for operand in (v for node in f.order if node.op is not CALL for v in node.operands):
            if isinstance(resolved(operand, f.copies), State):
                self.value(f, operand, "")  # Parameters come first, and have the names of the network
        if f.loop is None and f.graph.name in reachable_functions(f.graph):
            return self.loop(f)
        self.nodes(f, f.order)
        return "None" if is_monad(f.result.type) else self.value(f, f.result, "the result")

    def call(self, f: _Function, node: Node) -> str:
        (condition, callees), last = _callees(node), f.result is node
        if condition is None and last and f.loop is not None and f.loop.graph is callees[0].function:
            return self.next_round(f, node, f.loop)
        if condition is None:
            return self.called(f, callees[0], node, f.loop if last else None)
        name, found = self.locals.claim("chosen"), []
        for word, target in zip((f"if {self.value(f, condition, site(node))}:", "else:"), callees, strict=True):
            self.line(word)
            self.indent += "    "
            found.append(self.called(f, target, node, f.loop if last else None))
            if found[-1]:
                self.line(f"{name} = {found[-1]}")
            self.indent = self.indent[4:]
        if bool(found[0]) != bool(found[1]):
            raise PassError(f"{site(node)}: one of its branches leaves a loop; {_NOT}")
        return name if found[0] else ""

    def called(self, f: _Function, target: Target, node: Node, loop: _Function | None) -> str:
        names: dict[Value, str] = {formal: self.value(f, v, site(node)) for formal, v in _taken(target)}
        return self.function(_Function(target.function, names, loop, f.depth + 1))

    def next_round(self, f: _Function, node: Node, head: _Function) -> str:
        """The call with which the body of a loop ends: its arguments are the values of the next round."""
        given = {formal: self.value(f, v, site(node)) for formal, v in _taken(_callees(node)[1][0])}
        bound = {formal for formal in given if head.names[formal] in self.parameters}
        if any(given[formal] != head.names[formal] for formal in bound):
            raise PassError(f"{site(node)}: a loop that goes on with another state cannot be written as Python")
        varied = [formal for formal in given if formal not in bound]
        if varied:
            self.line(f"{', '.join(head.names[v] for v in varied)} = {', '.join(given[v] for v in varied)}")
        return ""

    def loop(self, f: _Function) -> str:
        """A loop: its head computes the condition, and calls the body or what comes after."""
        end, where = f.result, f"function '{f.graph.name}'"
        condition, callees = _callees(end) if isinstance(end, Node) and end.op is CALL else (None, ())
        if condition is None or [f.graph.name in reachable_functions(t.function) for t in callees] != [True, False]:
            raise PassError(f"{where} calls itself, but not as a loop that goes on while its condition holds; {_NOT}")
        assert isinstance(end, Node)
        for formal, text in list(f.names.items()):
            if text not in self.parameters:
                f.names[formal] = self.locals.claim(formal.name)
                self.line(f"{f.names[formal]} = {text}")
        start = len(self.lines)
        self.nodes(f, (node for node in f.order if node is not end))
        head = self.lines[start:]
        self.line(f"while {self.value(f, condition, where)}:")
        self.indent += "    "
        if self.called(f, callees[0], end, f):
            raise PassError(f"{where}: recursion that is not a loop cannot be written as Python")
        self.indent = self.indent[4:]
        self.lines += [f"    {line}" for line in head]
        return self.called(f, callees[1], end, f.loop)


def _callees(node: Node) -> tuple[Value | None, tuple[Target, ...]]:
    """The condition of a call, and the functions that it chooses from; PassError where it is not of one or two."""
    found = tuple(targets(node) or ())
    switch = switch_behind(node.operand(0))
    if switch is None and len(found) == 1:
        return None, found
    if switch is not None and len(found) == 2 and not any(map(switch_behind, switch.operands[1:])):
        return switch.operand(0), found
    raise PassError(f"{site(node)}: which function it calls is not decided by one condition at the call; {_NOT}")


def _taken(target: Target) -> list[tuple[Input, Value]]:
    """The inputs of a function, and what a call gives for them."""
    formal = [value for value in target.function.inputs if not is_monad(value.type)]
    return list(zip(formal, without_tokens(target.arguments), strict=False))
