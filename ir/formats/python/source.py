"""The text of the module: the class ``Network``, with a method for each function of the graph, the last one
``construct``, and a line for each node.

It is Python of a narrow kind: see check.py, which every text passes before it is run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
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
_NOT = "this cannot be written as Python"


@cache
def prelude() -> str:
    """The fixed beginning of every text: imports, how weights are read and primitives made."""
    return (resources.files(__package__) / "prelude.txt").read_text("ascii")


def write_source(graph: Graph) -> tuple[str, list[TensorValue]]:
    """A graph as a class, and the constants that stand in the file of the weights."""
    network = _Network()
    _Method(network, graph, {}).write("construct")
    source = prelude() + BEGIN + "\n\n".join(["\n".join(network.init), *network.methods]) + "\n"
    check_source(source, prelude())
    return source, [value for _, value in network.constants.values()]


class _Network:
    """What the methods share: fields, and constants of the file of the weights."""

    def __init__(self) -> None:
        self.names = Identifiers()
        self.init: list[str] = []
        self.methods: list[str] = []
        self.constants: dict[Hashable, tuple[int, TensorValue]] = {}
        self.made: dict[Hashable, str] = {}

    def field(self, hint: str, text: str, key: Hashable = None) -> str:
        """An attribute, made once for each text (and ``key``)."""
        if (text, key) not in self.made:
            self.made[text, key] = name = f"self.{self.names.claim(hint)}"
            self.init.append(f"        {name} = {text}")
        return self.made[text, key]

    def literal(self, value: Attribute, where: str) -> str:
        if not isinstance(value, TensorValue) or is_small(value):
            return literal(value, where)
        return f"state.constant({self.constants.setdefault(bits(value), (len(self.constants), value))[0]})"


class _Method:
    """A function. ``states``: its inputs that stand for state, by the state's name. ``loop``: the head of the loop that
    it is the body of, and the states of that."""

    def __init__(
        self, network: _Network, graph: Graph, states: Mapping[Input, str],
        loop: tuple[Graph, Mapping[Input, str]] | None = None, depth: int = 0,
    ):  # fmt: skip
        if depth > _DEEPEST_CALLS:
            raise PassError(f"functions call each other more than {_DEEPEST_CALLS} deep, up to '{graph.name}'")
        self.network, self.graph, self.states, self.loop, self.depth = network, graph, states, loop, depth
        self.order, self.copies = written_order(graph)
        self.locals = Identifiers()
        self.names: dict[Value, str] = {}
        self.lines: list[str] = []

    def write(self, name: str) -> None:
        inputs = [v for v in self.graph.inputs if not is_monad(v.type) and v not in self.states]
        self.names = {value: self.locals.claim(value.name) for value in inputs}
        for operand in (v for node in self.order if node.op is not CALL for v in node.operands):
            if self._state(operand) is not None:
                self._value(operand, "")  # Parameters come first, and have the names of the network
        result = resolved(self.graph.result, self.copies)
        if self.loop is None and self.graph.name in reachable_functions(self.graph):
            self._loop(result, [self.names[v] for v in inputs])
        else:
            self._nodes(self.order)
            self._line(f"return {'None' if is_monad(result.type) else self._value(result, 'the result')}")
        arguments = ", ".join(["self", *(self.names[v] for v in inputs)])
        self.network.methods.append("\n".join([f"    def {name}({arguments}):", *self.lines]))

    def _line(self, *texts: str) -> None:
        self.lines += [f"        {text}" for text in texts]

    def _value(self, value: Value, user: str) -> str:
        """What stands for a value."""
        value = resolved(value, self.copies)
        state = self._state(value)
        if value in self.names:
            return self.names[value]
        if state is not None:
            return self.network.field(state.rsplit(".", 1)[-1], f"state[{state!a}]")
        if isinstance(value, GraphRef):
            raise PassError(f"{user}: function '{value.name}' is passed on as a value; {_NOT}")
        if not isinstance(value, Constant):
            raise PassError(f"{user}: operand %{value.name} is not known where it is used")
        text = self.network.literal(value.value, user)
        return text if is_number(value.value) else self.network.field("constant", text)

    def _state(self, value: Value) -> str | None:
        value = resolved(value, self.copies)
        return value.name if isinstance(value, State) else self.states.get(value) if isinstance(value, Input) else None

    def _nodes(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            text = self._call(node) if node.op is CALL else self._text(node)
            used = any(not is_monad(user.type) for user in node.uses) or node is self.graph.result
            if used and node not in self.names:
                self.names[node] = self.locals.claim(node.op.instance or node.op.name)
            if text:
                self._line(f"{self.names[node]} = {text}" if used else text)

    def _text(self, node: Node) -> str:
        where, op = site(node), node.op
        given = without_tokens(node.operands)
        if node in self.copies:
            return self.network.field("tensor_move", "primitive('TensorMove')") + f"({self._value(given[0], where)})"
        if op.name == "TupleGetItem":
            index = given[1].value if isinstance(given[1], Constant) else None
            if not isinstance(index, int):
                raise PassError(f"{where}: takes an element whose index is computed; {_NOT}")
            return f"{self._value(given[0], where)}[{index}]"
        if op.name == "MakeTuple":
            return bracketed([self._value(v, where) for v in given])
        if facts(op).family is Family.CODE:
            raise PassError(f"{where}: primitive {op.name} runs code from the file; it is not written as Python")
        names = constructor_arguments().get(op.name, ()) if op.kind == 2 else ()
        first = max(len(given) - len(names), 0)
        last = [v.value for v in given[first:] if isinstance(v, Constant)]
        if len(last) < len(names):
            raise PassError(f"{where}: {op.name} needs {', '.join(names)} as constants at the end of its operands, "
                            "which MindSpore takes when the primitive is made")  # fmt: skip
        made = self._primitive(op, dict(zip(names, last, strict=True)), where)
        own = self.network.field(op.instance or op.name, made, node if is_random(node) else None)  # each its own draws
        return f"{own}({', '.join(self._operand(op, i, v, where) for i, v in enumerate(given[:first]))})"

    def _operand(self, op: Op, position: int, value: Value, where: str) -> str:
        handled = handled_operands().get((op.name, position)) if op.kind == 2 else None
        number = value.value if isinstance(value, Constant) else None
        if handled is None or not isinstance(number, int):
            return self._value(value, where)
        kind, name = handled
        if kind != "enum" and number not in DTYPES:
            raise PassError(f"{where}: {number} is not a type of a tensor")
        return self.network.field(
            name, f"word({op.name!a}, {name!a}, {number})" if kind == "enum" else f"ms.{DTYPES[number]}"
        )

    def _primitive(self, op: Op, arguments: Mapping[str, Attribute], where: str) -> str:
        attributes = {k: v for k, v in op.attributes.items() if op.kind != 2 or not k.startswith("side_effect_")}
        given = [arguments, attributes] if op.kind == 2 else [attributes]
        texts = [f"{op.name!a}", *(self._entries(values, where) for values in given)]
        while texts[-1] == "{}":
            texts.pop()
        return f"{'function' if op.kind == 2 else 'primitive'}({', '.join(texts)})"

    def _entries(self, values: Mapping[str, Attribute], where: str) -> str:
        texts = (f"{k!a}: {self.network.literal(v, f'{where}, {k!r}')}" for k, v in values.items())
        return f"{{{', '.join(texts)}}}"

    # -- functions -----------------------------------------------------------------------------------------------------

    def _call(self, node: Node) -> str:
        where, (condition, callees) = site(node), _callees(node)
        if condition is None and self.loop is not None and self.loop[0] is callees[0].function:
            return self._next_round(node, callees[0])
        if condition is None:
            return self._invoked(callees[0], "called", where)
        name = self.names[node] = self.locals.claim("chosen")
        when_true, when_false = (
            f"    {name} = {self._invoked(c, hint, where)}"
            for c, hint in zip(callees, ("when_true", "when_false"), strict=True)
        )
        self._line(f"if {self._value(condition, where)}:", when_true, "else:", when_false)
        return ""

    def _invoked(
        self, target: Target, hint: str, where: str, loop: tuple[Graph, Mapping[Input, str]] | None = None
    ) -> str:
        """The call of a function. The state that it takes is bound."""
        loop = loop or self.loop
        function, taken = target.function, _taken(target)
        states = {f: n for f, v in taken if (n := self._state(v)) is not None}
        if loop is not None and loop[0].name not in reachable_functions(function):
            loop = None  # what stands in a body, and does not lead to its end
        key = (function.name, tuple(sorted((f.name, n) for f, n in states.items())), loop and loop[0].name)
        if key not in self.network.made:
            self.network.made[key] = name = self.network.names.claim(hint)
            _Method(self.network, function, states, loop, self.depth + 1).write(name)
        arguments = ", ".join(self._value(v, where) for f, v in taken if f not in states)
        return f"self.{self.network.made[key]}({arguments})"

    def _next_round(self, node: Node, target: Target) -> str:
        """The call with which the body of a loop ends: its arguments are the values of the next round."""
        assert self.loop is not None
        if resolved(self.graph.result, self.copies) is not node:
            raise PassError(f"{site(node)}: recursion that is not a loop cannot be written as Python")
        bound = self.loop[1]
        if any(f in bound and self._state(v) != bound[f] for f, v in _taken(target)):
            raise PassError(f"{site(node)}: a loop that goes on with another state cannot be written as Python")
        given = [self._value(v, site(node)) for f, v in _taken(target) if f not in bound]
        return given[0] if len(given) == 1 else bracketed(given)

    def _loop(self, call: Value, inputs: Sequence[str]) -> None:
        """A loop: its head computes the condition, and calls the body or what comes after."""
        where = f"function '{self.graph.name}'"
        condition, callees = _callees(call) if isinstance(call, Node) and call.op is CALL else (None, ())
        if condition is None or [self.graph.name in reachable_functions(t.function) for t in callees] != [True, False]:
            raise PassError(f"{where} calls itself, but not as a loop that goes on while its condition holds; {_NOT}")
        self._nodes(node for node in self.order if node is not call)
        head = list(self.lines)
        body = self._invoked(callees[0], "body", where, (self.graph, self.states))
        given = f"{', '.join(inputs)} = " if inputs else ""
        self._line(f"while {self._value(condition, where)}:", f"    {given}{body}")
        self.lines += [f"    {line}" for line in head]
        self._line(f"return {self._invoked(callees[1], 'after', where)}")


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
