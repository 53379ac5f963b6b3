"""Reads graphs: functions, states, constants and nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..core.attributes import type_of
from ..core.errors import Error, nearest
from ..core.graph import Constant, Graph, Node, Origin, Value
from ..core.inference import RULES, infer
from ..core.naming import BARE_NAME
from ..core.op import CALL, NO_ATTRIBUTES, Op
from ..core.primitives import make_op
from ..core.program import StateVariable
from ..core.types import UNKNOWN, FunctionType, TensorType, TupleType, Type
from .literals import LiteralScanner

_GRAPH_START = re.compile(r"^[ \t]*(?:graph|func)\b", re.MULTILINE)
_OPERAND = re.compile(rf"[ \t\r\n]*%({BARE_NAME})[ \t\r\n]*([,)])")
_OP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT = re.compile(r"[0-9]+")
_SIMPLE = r"[A-Za-z0-9_.$\-]+(?::[A-Za-z0-9_.$\-]+)*"
_TAKEN = rf'%(?:{_SIMPLE}|"[^"\\\n%,]*")'
_FLAT = r'\{[^"\n{}/]*(?:"[^"\\\n]*"[^"\n{}/]*)*\}'
_LINE = re.compile(
    rf"[ \t\r\n]*%({_SIMPLE}) = ([A-Za-z_][A-Za-z0-9_]*)\(((?:{_TAKEN}(?:, {_TAKEN})*)?)\)( {_FLAT}(?: exact)?)?"
    r' : ([^\s"(/]+|\([^()"/\n]*\)[!*]?)((?: instance\("[^"\\\n]*"\))?(?: kind\([0-9]+\))?)'
    rf'(?: scope\("([^"\\\n]*)"\))?(?: marks ({_FLAT}))?(?: primal ({_FLAT}))?[ \t]*\r?\n'
)
"""A node as the printer writes it: name, primitive, operands, attributes, type, the record of the primitive, scope,
marks, primal marks. A part that may hold a comment, an escape or a bracket in a bracket is not taken."""
INFERRED, PER_CHARACTER = 100_000, 10
"""How much the types that a text leaves out may say: a tuple of a tuple twice, and so on, doubles in each line."""
_NOTES = ("marks", "primal", "scope", "instance", "kind", "origin")
_STATEMENTS = "'%name = …', 'const', 'state', 'return', 'func' or '}'"


class _Body:
    """The definitions in one graph's text: values by their name in the text."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.values: dict[str, Value] = {}


class GraphParser(LiteralScanner):
    """``state``: what the program declares, for graphs to refer to."""

    def __init__(self, text: str, source: str):
        super().__init__(text, source)
        self.state: dict[str, StateVariable] = {}
        self._ops: dict[str, Op] = {}
        self._ops_of: dict[tuple[str | Any, ...], Op] = {}
        self._types_of: dict[str, Type] = {}
        self._notes_of: dict[str | None, Mapping[str, Any]] = {None: NO_ATTRIBUTES}
        """What parts of lines mean, by their text (:meth:`whole_line`)."""
        self._functions: dict[str, None] = {}
        """Functions of the graph at hand, in the order of the text."""
        self._inferred = 0
        self._wanted: dict[str, int] = {}
        """Functions that were mentioned, and where first."""

    def graph(self) -> Graph:
        if not self.accept_word("graph"):
            raise self.error(f"expected 'graph @name(…) {{', found {self.found()}")
        graph = Graph(self.marked_name("@", "the graph's name"))
        self._functions, self._wanted = {}, {}
        self.body(graph)
        for name, at in self._wanted.items():
            if name not in self._functions:
                raise self.error(f"no function @{name} in graph @{graph.name}", at)
        # Functions were entered when first mentioned; their order is that of the text.
        ordered = {name: graph.functions[name] for name in self._functions}
        graph.functions.clear()
        graph.functions.update(ordered)
        return graph

    def function(self, owner: Graph) -> None:
        self.skip()
        at = self.pos
        name = self.marked_name("@", "the function's name")
        if name in self._functions or name == owner.name:
            raise self.error(f"@{name} is defined twice", at)
        self._functions[name] = None
        self.body(self.function_named(owner, name))

    def function_named(self, owner: Graph, name: str) -> Graph:
        function = owner.functions.get(name)
        if function is None:
            function = owner.functions[name] = Graph(name, owner)
        return function

    def body(self, graph: Graph) -> None:
        body = _Body(graph)
        self.expect("(", "and the graph's inputs")
        for _ in self.listed(")", "after the graph's inputs"):
            at = self.pos
            name = self.marked_name("%", "an input's name")
            self.expect(":", f"and the type of %{name}")
            self.define(body, name, graph.add_input(name, self.type()), at)
        if self.accept("->"):
            self.expect("(", "and the names of the outputs")
            names = self.listed(")", "after the names of the outputs")
            graph.outputs = tuple([self.name("an output's name") for _ in names])
        self.expect("{", "and the graph's nodes")
        while not self.accept("}"):
            self.statement(body)
        if not graph.has_result:
            raise self.error(f"graph @{graph.name} has no 'return %value'", self.pos - 1)

    def statement(self, body: _Body) -> None:
        graph = body.graph
        line = _LINE.match(self.text, self.pos)
        if line is not None and self.whole_line(body, line):
            return
        if self.peek("%"):
            node = self.node(body)
            self.end_of_line()
            if line is not None:
                self._ops_of[line.group(2, 4, 6)] = node.op
            return
        at = self.pos
        word = self.peek_word()
        self.pos += len(word)
        if word == "const":
            self.constant(body)
        elif word == "state":
            self.graph_state(body)
        elif word == "return":
            if graph.has_result:
                raise self.error(f"graph @{graph.name} returns twice", at)
            graph.result = self.operand(body)
        elif word == "func" and graph.owner is None:
            self.function(graph)
        elif word == "attributes":
            graph.attributes = self.mapping()
        elif word == "info":
            graph.info = self.mapping()
        else:
            self.pos = at
            raise self.error(f"expected {_STATEMENTS}, found {self.found()}")
        self.end_of_line()

    def define(self, body: _Body, name: str, value: Value, at: int) -> None:
        if name in body.values:
            raise self.error(f"%{name} is defined twice in graph @{body.graph.name}", at)
        body.values[name] = value

    def graph_state(self, body: _Body) -> None:
        at = self.pos
        name = self.marked_name("%", "a state's name")
        declared = self.state.get(name)
        if self.peek(":") or declared is None:
            type_ = self.state_type(name)
        else:
            type_ = declared.type
        self.define(body, name, body.graph.state(name, type_), at)

    def constant(self, body: _Body) -> None:
        at = self.pos
        name = self.marked_name("%", "a constant's name")
        self.expect("=", f"and the value of %{name}")
        value = self.value()
        type_ = self.type() if self.accept(":") else type_of(value)
        constant = Constant(name, value, type_)
        if constant.type == type_of(value):
            body.graph.adopt(constant)
        self.define(body, name, constant, at)

    # -- nodes -----------------------------------------------------------------------------------------------

    def operand(self, body: _Body) -> Value:
        self.skip()
        at = self.pos
        if self.accept("%"):
            return self.lookup(body, self.name("a value's name"), at)
        if self.accept("@"):
            name = self.name("a function's name")
            owner = body.graph.owner or body.graph
            self._wanted.setdefault(name, at)
            return body.graph.reference(self.function_named(owner, name))
        value = self.value()
        if isinstance(value, dict):
            raise self.error("a mapping is no operand", at)
        return body.graph.constant(value)

    def lookup(self, body: _Body, name: str, at: int) -> Value:
        value = body.values.get(name)
        if value is None:
            declared = self.state.get(name)
            if declared is None or body.graph.owner is not None:
                raise self.error(self.undefined(body, name), at)
            value = body.values[name] = body.graph.state(name, declared.type)
        return value

    def undefined(self, body: _Body, name: str) -> str:
        end = _GRAPH_START.search(self.text, self.pos)
        definition = re.compile(rf'^[ \t]*%"?{re.escape(name)}"?[ \t]*=', re.MULTILINE)
        later = definition.search(self.text, self.pos, end.start() if end else len(self.text))
        if later:
            line = self.text.count("\n", 0, later.start() + 1) + 1
            return f"%{name} is used before its definition on line {line}"
        hint = nearest(name, list(body.values)) if len(body.values) <= 10_000 else ""
        if name in self.state:
            return f"%{name} is program state, which a function cannot use directly: pass it in through Partial"
        return f"%{name} is not defined in graph @{body.graph.name}{hint}"

    def operands(self, body: _Body) -> list[Value]:
        self.expect("(", "before the operands")
        found: list[Value] = []
        if self.accept(")"):
            return found
        text, values = self.text, body.values
        while True:
            match = _OPERAND.match(text, self.pos)
            if match:
                name, closing = match.groups()
                value = values.get(name)
                found.append(self.lookup(body, name, match.start(1) - 1) if value is None else value)
                self.pos = match.end()
                if closing == ")":
                    return found
                continue
            found.append(self.operand(body))
            if self.accept(")"):
                return found
            self.expect(",", "or ')' after an operand")

    def whole_line(self, body: _Body, line: re.Match[str]) -> bool:
        """Takes a node whose line matches as a whole, in a third of the time of reading part by part; False, and
        nothing is done, where its primitive is new or something is wrong."""
        name, primitive, taken, attributes, type_, recorded, scope, marks, primal = line.groups()
        values = body.values
        op = self._ops_of.get((primitive, attributes, recorded))
        if op is None or name in values:
            return False
        operands: list[Value] = []
        for operand in taken[1:].split(", %") if taken else ():
            value = values.get(operand if operand[0] != '"' else operand[1:-1])
            if value is None:
                return False
            operands.append(value)
        known_type = self._types_of.get(type_)
        if known_type is None:
            before, self.pos = self.pos, line.start(5)
            known_type = self.type()
            if self.pos != line.end(5):
                self.pos = before
                return False
            self._types_of[type_] = known_type
        notes = self.noted(line, 8, marks), self.noted(line, 9, primal)
        node = values[name] = Node(name, known_type, op, scope or "", *notes)
        body.graph.insert(node)
        node.set_operands(operands)
        self.pos = line.end()
        return True

    def noted(self, line: re.Match[str], group: int, text: str | None) -> Mapping[str, Any]:
        """The marks in a group of a line; one object for all nodes that have the same."""
        found = self._notes_of.get(text)
        if found is None:
            self.pos = line.start(group)
            found = self._notes_of[text] = self.mapping() or NO_ATTRIBUTES
        return found

    def node(self, body: _Body) -> Node:
        at = self.pos
        self.expect("%")
        name = self.name("a node's name")
        self.expect("=", f"after %{name}")
        self.skip()
        op_at = self.pos
        match = self.match(_OP_NAME)
        op_name = match.group() if match else self.string()
        operands = self.operands(body)
        given: dict[str, Any] = {}
        exact = False
        if self.peek("{"):
            given = self.mapping()
            exact = self.accept_word("exact")
        type_ = self.type() if self.accept(":") else None
        node = Node(name, UNKNOWN if type_ is None else type_, CALL)
        instance, kind = self.notes(node)
        node.op = self.op(op_name, given, exact, instance, kind)
        if type_ is None:
            if op_name not in RULES:
                raise self.error(
                    f"the type of {op_name} has to be written: expected ': type' after the operands", op_at
                )
            try:
                node.type = infer(node.op, operands)
            except Error as e:
                raise self.error(str(e), op_at) from None
            if isinstance(node.type, (TupleType, FunctionType)):
                self._inferred += node.type.size if isinstance(node.type, TupleType) else len(node.type.functions)
                if self._inferred > INFERRED + PER_CHARACTER * len(self.text):
                    raise self.error("the types that are not written grow out of all proportion: write them", op_at)
        self.define(body, name, node, at)
        body.graph.insert(node)
        node.set_operands(operands)
        return node

    def notes(self, node: Node) -> tuple[str, int | None]:
        """Reads all that may follow a node's type, in any order; returns the primitive's instance name and kind."""
        instance, kind = "", None
        while (word := self.peek_word()) in _NOTES:
            self.pos += len(word)
            if word == "marks":
                node.marks = self.mapping() or NO_ATTRIBUTES
                continue
            if word == "primal":
                node.primal = self.mapping() or NO_ATTRIBUTES
                continue
            self.expect("(", f"after '{word}'")
            if word == "scope":
                node.scope = self.string()
            elif word == "instance":
                instance = self.string()
            elif word == "kind":
                kind = self.integer()
            else:
                node.origin = self.origin()
            self.expect(")", f"at the end of '{word}'")
        return instance, kind

    def origin(self) -> Origin:
        lists: list[list[str]] = [[], []]
        for i, strings in enumerate(lists):
            while self.peek('"'):
                strings.append(self.string())
                if not self.accept(","):
                    break
            if i == 0 and not self.accept(";"):
                break
        return Origin(tuple(lists[0]), tuple(lists[1]))

    def op(self, name: str, given: dict[str, Any], exact: bool, instance: str, kind: int | None) -> Op:
        if not given and not exact and not instance and kind is None:
            op = self._ops.get(name)
            if op is None:
                op = self._ops[name] = make_op(name)
            return op
        table = make_op(name, given)
        if exact or instance or (kind is not None and kind != table.kind):
            attributes = given if exact else table.attributes
            return Op(name, attributes, instance, table.kind if kind is None else kind)
        return table

    def integer(self) -> int:
        match = self.match(_INT)
        if match is None:
            raise self.error(f"expected a whole number, found {self.found()}")
        number = self.whole(match.group(), match.start())
        if number >= 2**63:
            raise self.error("a number of more than 64 bits", match.start())
        return number

    def state_type(self, name: str) -> TensorType:
        self.expect(":", f"and the type of state %{name}")
        self.skip()
        at = self.pos
        type_ = self.type()
        if not isinstance(type_, TensorType):
            raise self.error(f"state is a tensor, not {type_}", at)
        return type_
