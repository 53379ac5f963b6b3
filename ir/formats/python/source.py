"""The text of the module: a class for each function of the graph, the last one ``Network``, with a line for each node.

It is Python of a narrow kind: see check.py, which every text passes before it is run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
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
from ...core.types import is_monad
from .check import check_source
from .identifiers import Identifiers, attribute, camel, is_plain, snake
from .literals import DTYPES, is_number, is_small, literal
from .order import resolved, written_order

_DEEPEST_CALLS = 40


@cache
def prelude() -> str:
    """The fixed beginning of every text: imports, how weights are read and primitives made."""
    return (resources.files(__package__) / "prelude.txt").read_text("ascii")


def write_source(graph: Graph) -> tuple[str, list[TensorValue]]:
    """A graph as classes, and the constants that stand in the file of the weights."""
    module = _Module()
    _Class(module, graph, {}).write("Network")
    source = "\n\n".join([prelude(), *module.texts])
    check_source(source, prelude())
    return source, module.constants


class _Module:
    def __init__(self) -> None:
        self.names = Identifiers()
        self.texts: list[str] = []
        self.constants: list[TensorValue] = []
        self._constants: dict[Hashable, int] = {}
        self.classes: dict[Hashable, str] = {}

    def constant(self, value: TensorValue) -> int:
        """The number of a constant tensor in the file of the weights."""
        number = self._constants.setdefault(bits(value), len(self.constants))
        if number == len(self.constants):
            self.constants.append(value)
        return number


class _Class:
    """A function as a Cell. ``states``: its inputs that stand for state, by the state's name. ``loop``: the head of the
    loop that it is the body of, and the states of that."""

    def __init__(
        self,
        module: _Module,
        graph: Graph,
        states: Mapping[Input, str],
        loop: tuple[Graph, Mapping[Input, str]] | None = None,
        depth: int = 0,
    ):
        if depth > _DEEPEST_CALLS:
            raise PassError(f"functions call each other more than {_DEEPEST_CALLS} deep, up to '{graph.name}'")
        self.module, self.graph, self.states, self.loop, self.depth = module, graph, states, loop, depth
        self.order, self.copies = written_order(graph)
        self.fields, self.locals = Identifiers(), Identifiers()
        self.made: dict[Hashable, str] = {}
        self.names: dict[Value, str] = {}
        self.init: list[str] = []
        self.lines: list[str] = []

    def write(self, name: str) -> None:
        inputs = [v for v in self.graph.inputs if not is_monad(v.type) and v not in self.states]
        for value in inputs:
            self.names[value] = self.locals.claim(snake(value.name))
        for operand in (v for node in self.order if node.op is not CALL for v in node.operands):
            if self._state(resolved(operand, self.copies)) is not None:
                self.value(operand, "")  # Parameters come first, and have the names of the network
        result = resolved(self.graph.result, self.copies)
        if self.loop is None and self.graph.name in reachable_functions(self.graph):
            self._loop(result, [self.names[v] for v in inputs])
        else:
            for node in self.order:
                self._node(node)
            self.lines.append(f"return {'None' if is_monad(result.type) else self.value(result, 'the result')}")
        self.module.texts.append("\n".join([
            f"class {name}(nn.Cell):",
            "    def __init__(self, state):",
            "        super().__init__(auto_prefix=False)",
            *(f"        {line}" for line in self.init),
            "",
            f"    def construct({', '.join(['self', *(self.names[v] for v in inputs)])}):",
            *(f"        {line}" for line in self.lines),
        ]) + "\n")  # fmt: skip

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, value: Value, user: str) -> str:
        """What stands for a value in ``construct``."""
        value = resolved(value, self.copies)
        state = self._state(value)
        if value in self.names:
            return self.names[value]
        if state is not None:
            return self._field(("state", state), attribute(state.rsplit(".", 1)[-1]), lambda: f"state[{state!a}]")
        if isinstance(value, GraphRef):
            raise PassError(
                f"{user}: function '{value.name}' is passed on as a value; this cannot be written as Python"
            )
        if not isinstance(value, Constant):
            raise PassError(f"{user}: operand %{value.name} is not known where it is used")
        text = self._literal(value.value, user)
        return text if is_number(value.value) else self._field(("literal", text), "constant", lambda: text)

    def _state(self, value: Value) -> str | None:
        if isinstance(value, State):
            return value.name
        return self.states.get(value) if isinstance(value, Input) else None

    def _literal(self, value: Attribute, where: str) -> str:
        if isinstance(value, TensorValue) and not is_small(value):
            return f"state.constant({self.module.constant(value)})"
        return literal(value, where)

    def _field(self, key: Hashable, hint: str, text: Callable[[], str]) -> str:
        """An attribute of the Cell, made once for each ``key``."""
        if key not in self.made:
            self.made[key] = self.fields.claim(hint)
            self.init.append(f"self.{self.made[key]} = {text()}")
        return f"self.{self.made[key]}"

    def _assign(self, node: Node, text: str) -> None:
        used = any(not is_monad(user.type) for user in node.uses) or node is self.graph.result
        if used:
            self.names[node] = self.locals.claim(snake(node.op.instance or node.op.name))
        self.lines.append(f"{self.names[node]} = {text}" if used else text)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        where = _where(node)
        given = [v for v in node.operands if not is_monad(v.type)]
        if node in self.copies:
            move = self._field("copy", "tensor_move", lambda: "primitive('TensorMove')")
            self._assign(node, f"{move}({self.value(node.operand(0), where)})")
        elif node.op.name == "TupleGetItem":
            index = given[1].value if isinstance(given[1], Constant) else None
            if not isinstance(index, int):
                raise PassError(f"{where}: takes an element whose index is computed; this cannot be written as Python")
            self._assign(node, f"{self.value(given[0], where)}[{index}]")
        elif node.op.name == "MakeTuple":
            self._assign(node, _tuple([self.value(v, where) for v in given]))
        elif node.op is CALL:
            self._call(node)
        else:
            self._assign(node, self._applied(node, given))

    def _applied(self, node: Node, given: Sequence[Value]) -> str:
        where, op = _where(node), node.op
        if facts(op).family is Family.CODE:
            raise PassError(f"{where}: primitive {op.name} runs code from the file; it is not written as Python")
        names = constructor_arguments().get(op.name, ()) if op.kind == 2 else ()
        first = len(given) - len(names)
        last = [v.value for v in given[max(first, 0) :] if isinstance(v, Constant)]
        if len(last) < len(names):
            raise PassError(
                f"{where}: {op.name} needs {', '.join(names)} as constants at the end of its operands, which MindSpore "
                "takes when the primitive is made"
            )
        text = self._primitive(op, dict(zip(names, last, strict=True)), where)
        draw = node if is_random(node) else None  # each has a state of its own
        primitive = self._field((text, draw), attribute(op.instance or snake(op.name)), lambda: text)
        return f"{primitive}({', '.join(self._operand(op, i, v, where) for i, v in enumerate(given[:first]))})"

    def _operand(self, op: Op, position: int, value: Value, where: str) -> str:
        handled = handled_operands().get((op.name, position)) if op.kind == 2 else None
        number = value.value if isinstance(value, Constant) else None
        if handled is None or not isinstance(number, int):
            return self.value(value, where)
        kind, name = handled
        if kind != "enum" and number not in DTYPES:
            raise PassError(f"{where}: {number} is not a type of a tensor")
        text = f"word({op.name!a}, {name!a}, {number})" if kind == "enum" else f"ms.{DTYPES[number]}"
        return self._field(("operand", text), snake(name), lambda: text)

    def _primitive(self, op: Op, arguments: Mapping[str, Attribute], where: str) -> str:
        attributes = {
            k: self._literal(v, f"{where}, attribute {k!r}")
            for k, v in op.attributes.items()
            if op.kind != 2 or not k.startswith("side_effect_")
        }
        odd = {k: v for k, v in attributes.items() if op.kind == 2 or not is_plain(k)}
        given = [f"{op.name!a}", *(["{" + ", ".join(f"{k!a}: {v}" for k, v in odd.items()) + "}"] if odd else [])]
        given += [f"{k}={v}" for k, v in attributes.items() if k not in odd]
        given += [f"{k}={self._literal(v, f'{where}, argument {k!r}')}" for k, v in arguments.items()]
        return f"{'function' if op.kind == 2 else 'primitive'}({', '.join(given)})"

    # -- functions ---------------------------------------------------------------------------------------------------

    def _call(self, node: Node) -> None:
        where, (condition, callees) = _where(node), _callees(node)
        if condition is None and self.loop is not None and self.loop[0] is callees[0].function:
            self._assign(node, self._next_round(node, callees[0]))
            return
        if condition is None:
            self._assign(node, self._invoked(callees[0], "called", where))
            return
        name = self.names[node] = self.locals.claim("chosen")
        self.lines.append(f"if {self.value(condition, where)}:")
        self.lines.append(f"    {name} = {self._invoked(callees[0], 'when_true', where)}")
        self.lines.append("else:")
        self.lines.append(f"    {name} = {self._invoked(callees[1], 'when_false', where)}")

    def _invoked(
        self, target: Target, hint: str, where: str, loop: tuple[Graph, Mapping[Input, str]] | None = None
    ) -> str:
        """The call of a function: its state is bound when its Cell is made."""
        loop = loop or self.loop
        function, taken = target.function, _taken(target)
        states = {f: n for f, v in taken if (n := self._state(resolved(v, self.copies))) is not None}
        if loop is not None and loop[0].name not in reachable_functions(function):
            loop = None  # what stands in a body, and does not lead to its end
        key = (function.name, tuple(sorted((f.name, n) for f, n in states.items())), loop and loop[0].name)
        if key not in self.module.classes:
            self.module.classes[key] = self.module.names.claim(camel(hint))
            _Class(self.module, function, states, loop, self.depth + 1).write(self.module.classes[key])
        name = self.module.classes[key]
        cell = self._field(("cell", name), hint, lambda: f"{name}(state)")
        return f"{cell}({', '.join(self.value(v, where) for f, v in taken if f not in states)})"

    def _next_round(self, node: Node, target: Target) -> str:
        """The call with which the body of a loop ends: its arguments are the values of the next round."""
        assert self.loop is not None
        if resolved(self.graph.result, self.copies) is not node:
            raise PassError(f"{_where(node)}: recursion that is not a loop cannot be written as Python")
        given = []
        for formal, value in _taken(target):
            bound = self.loop[1].get(formal)
            if bound is None:
                given.append(self.value(value, _where(node)))
            elif self._state(resolved(value, self.copies)) != bound:
                raise PassError(f"{_where(node)}: a loop that goes on with another state cannot be written as Python")
        return given[0] if len(given) == 1 else _tuple(given)

    def _loop(self, call: Value, inputs: Sequence[str]) -> None:
        """A loop: its head computes the condition, and calls the body or what comes after."""
        where = f"function '{self.graph.name}'"
        condition, callees = _callees(call) if isinstance(call, Node) and call.op is CALL else (None, ())
        bodies = [self.graph.name in reachable_functions(t.function) for t in callees]
        if condition is None or bodies != [True, False]:
            raise PassError(f"{where} calls itself, but not as a loop that goes on while its condition holds; this "
                            "cannot be written as Python")  # fmt: skip
        for node in self.order:
            if node is not call:
                self._node(node)
        head = list(self.lines)
        body = self._invoked(callees[0], "body", where, (self.graph, self.states))
        self.lines.append(f"while {self.value(condition, where)}:")
        self.lines.append(f"    {', '.join(inputs)} = {body}")
        self.lines += [f"    {line}" for line in head]
        self.lines.append(f"return {self._invoked(callees[1], 'after', where)}")


def _callees(node: Node) -> tuple[Value | None, tuple[Target, ...]]:
    """The condition of a call, and the functions that it chooses from; PassError where it is not of one or two."""
    found = tuple(targets(node) or ())
    switch = switch_behind(node.operand(0))
    if switch is None and len(found) == 1:
        return None, found
    if switch is not None and len(found) == 2 and not any(map(switch_behind, switch.operands[1:])):
        return switch.operand(0), found
    raise PassError(
        f"{_where(node)}: which function it calls is not decided by one condition at the call; this control flow "
        "cannot be written as Python"
    )


def _taken(target: Target) -> list[tuple[Input, Value]]:
    """The inputs of a function, and what a call gives for them."""
    formal = [value for value in target.function.inputs if not is_monad(value.type)]
    return list(zip(formal, without_tokens(target.arguments), strict=False))


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _where(node: Node) -> str:
    return f"node %{node.name} ({node.op.name}, scope '{node.scope}')"
