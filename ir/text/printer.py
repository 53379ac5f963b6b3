"""Graphs and programs as text.

One definition a line: ``%name = Op(%a, %b) {attribute = value} : type``, then, in the full form, the primitive's
recorded ``instance("…")`` and ``kind(N)`` where they differ from the op table, and the node's annotations. Attributes
that the op table gives the primitive anyway are left out (``exact`` after the braces: these and no others). The full
form holds everything; :mod:`.parser` gives the same program back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from ..core.attributes import Attribute, Number, bits, type_of
from ..core.errors import VerifyError
from ..core.graph import Constant, Graph, GraphRef, Node, Value
from ..core.inference import infer
from ..core.naming import UniqueNames, quote, spell
from ..core.op import Op
from ..core.primitives import make_op
from ..core.program import Program, StateVariable
from ..core.types import FunctionType, TupleType, Type
from ..core.variants import LISTED
from .spelling import Resources, Spelling

_INLINE_WIDTH = 40
_NOISE = frozenset({"input_names", "output_names"})
"""Attributes of no effect on what a primitive computes: left out for display."""


def print_program(program: Program, *, annotations: bool = True, resources: bool = True) -> str:
    """The whole program, but for its pass reports.

    ``annotations=False`` is for people and FileCheck: constants stand where they are used; the file's notes, scopes,
    marks, origins and recorded primitive names are left out. ``resources=False`` elides big data: the text can still be
    read, but what needs those bytes fails with a FormatError.
    """
    printer = _Printer(annotations, resources)
    return "\n".join([*printer.program(program), *printer.tail()]) + "\n"


def print_graph(graph: Graph, *, annotations: bool = True, resources: bool = True) -> str:
    """One graph (with its functions, if it has any). Options as for :func:`print_program`."""
    printer = _Printer(annotations, resources)
    return "\n".join([*printer.graph(graph), *printer.tail()]) + "\n"


def node_printer(graph: Graph) -> Callable[[Node], str]:
    """A function that gives a node's line as it stands in the graph's display form, of a broken node too; wide nodes
    are cut short. The graph's list of nodes must be intact."""
    printer = _Printer(annotations=False, resources=False)
    names = _Names(graph, printer)
    return lambda node: printer.node(node, names, width=16)


def value_names(graph: Graph) -> Callable[[Value], str]:
    """A function that gives a value of the graph the name that it has in the graph's display form."""
    return _Names(graph, _Printer(annotations=False, resources=False))


class _Names:
    """The name of each value of one graph: as recorded, made unique; constants that stand where used as their value."""

    def __init__(self, graph: Graph, printer: _Printer):
        self.constants: list[Constant] = []
        inline: dict[Value, str] = {}
        named: list[Value] = [*graph.states.values(), *graph.inputs]
        seen: set[Value] = set()
        for operand in _operands(graph):
            if isinstance(operand, Constant) and operand not in seen:
                seen.add(operand)
                spelled = printer.inline(operand)
                if spelled:
                    inline[operand] = spelled
                else:
                    self.constants.append(operand)
        named += self.constants
        named += graph
        unique = UniqueNames(v.name for v in named)
        self.of: dict[Value, str] = {v: "%" + spell(unique.claim(v.name)) for v in named}
        self.of.update(inline)

    def __call__(self, value: Value) -> str:
        name = self.of.get(value)
        if name is None:
            if isinstance(value, GraphRef):
                name = "@" + spell(value.graph.name)
            else:
                # Not defined in this graph: printable for messages, an error to read.
                name = "%" + quote(f"{getattr(value, 'name', value)} (not in this graph)")
            self.of[value] = name
        return name


class _Printer:
    def __init__(self, annotations: bool, resources: bool):
        self.full = annotations
        self.resources = Resources() if resources else None
        self.spell = Spelling(self.resources)
        self._types: dict[Type, str] = {}
        self._ops: dict[Op, tuple[str, str, str]] = {}

    def tail(self) -> list[str]:
        lines = self.resources.lines() if self.resources else []
        return ["", *lines] if lines else []

    # -- program ---------------------------------------------------------------------------------------------

    def program(self, program: Program) -> Iterator[str]:
        yield f"program @{spell(program.name)} {{"
        yield f"  target {spell(program.target)}"
        if program.pipeline:
            yield f"  pipeline {quote(program.pipeline)}"
        yield f"  schedule {self.schedule(program)}"
        if self.full:
            if program.metadata:
                yield f"  metadata {self.spell.mapping(program.metadata)}"
            if program.source:
                yield f"  source {self.spell.mapping(program.source)}"
        yield "}"
        if program.state:
            yield ""
        for name, variable in program.state.items():
            yield self.variable(name, variable)
        for name, graph in program.graphs.items():
            yield ""
            yield from self.graph(graph, name, program.state)

    def schedule(self, program: Program) -> str:
        schedule = program.schedule
        entries = [f"@{spell(e.graph)}" + (f" * {e.repeat}" if e.repeat != 1 else "") for e in schedule.cycle]
        text = ", ".join(entries)
        if schedule.flush is not None:
            text += f"; flush @{spell(schedule.flush)}"
        if schedule.count is not None:
            text += f"; count %{spell(schedule.count)}"
        if schedule.max_skipped is not None:
            text += f"; max_skipped {schedule.max_skipped}"
        if (c := schedule.choice) is not None:
            listed = c.kind == LISTED
            which = ", ".join(map(str, c.sequence)) if listed else f"{c.probability!r} {c.cycles} {c.seed}"
            text += f"; choice {c.variants} {c.kind} {which}{' repeat' if c.repeat else ''} %{spell(c.state)}"
        if (s := schedule.search) is not None:
            text += f"; search @{spell(s.trial)} @{spell(s.judge)} %{spell(s.pending)} {s.at_most}"
            text += "".join(f" %{spell(name)}" for name in s.kept)
        return text

    def variable(self, name: str, variable: StateVariable) -> str:
        text = f"state %{spell(name)}: {self.type(variable.type)}"
        text += f"<{self.spell.data(variable.type, variable.data, hashed=False)}>"
        if variable.role != "unknown":
            text += f" role={spell(variable.role)}"
        if variable.trainable is not None:
            text += f" trainable={'true' if variable.trainable else 'false'}"
        if variable.weight:
            text += f" weight=%{spell(variable.weight)}"
        if variable.info and self.full:
            text += f" info {self.spell.mapping(variable.info)}"
        return text

    # -- graphs ----------------------------------------------------------------------------------------------

    def graph(
        self, graph: Graph, name: str = "", states: Mapping[str, StateVariable] | None = None, indent: str = ""
    ) -> Iterator[str]:
        names = _Names(graph, self)
        word = "graph" if graph.owner is None else "func"
        inputs = ", ".join(f"{names(v)}: {self.type(v.type)}" for v in graph.inputs)
        outputs = f" -> ({', '.join(map(spell, graph.outputs))})" if graph.outputs else ""
        yield f"{indent}{word} @{spell(name or graph.name)}({inputs}){outputs} {{"
        inner = indent + "  "
        if self.full:
            if graph.attributes:
                yield f"{inner}attributes {self.spell.mapping(graph.attributes)}"
            if graph.info:
                yield f"{inner}info {self.spell.mapping(graph.info)}"
        for value in graph.states.values():
            declared = states.get(value.name) if states is not None else None
            if self.full or declared is None or declared.type != value.type:
                yield f"{inner}state {names(value)}: {self.type(value.type)}"
        for constant in names.constants:
            typed = "" if constant.type == type_of(constant.value) else f" : {self.type(constant.type)}"
            yield f"{inner}const {names(constant)} = {self.spell.value(constant.value)}{typed}"
        for node in graph:
            yield inner + self.node(node, names)
        if graph.has_result:
            yield f"{inner}return {names(graph.result)}"
        if graph.owner is None:
            for fname, function in graph.functions.items():
                yield ""
                yield from self.graph(function, fname, states, inner)
        yield f"{indent}}}"

    def node(self, node: Node, names: _Names, width: int = 0) -> str:
        of = names.of
        operands = node._operands
        shown = islice(operands, width) if 0 < width < len(operands) else operands
        spelled = ", ".join([of.get(v) or names(v) for v in shown])
        if shown is not operands:
            spelled += f", … {len(operands) - width} more"
        name, attributes, recorded = self._ops.get(node.op) or self.op(node.op)
        text = f"{names(node)} = {name}({spelled}){attributes}"
        if self.full:
            return f"{text} : {self.type(node.type)}{recorded}{self.annotations(node)}"
        if isinstance(node.type, FunctionType) and _is_inferred(node):
            return text
        return f"{text} : {self.type(node.type)}"

    def annotations(self, node: Node) -> str:
        text = ""
        if node.scope:
            text += f" scope({quote(node.scope)})"
        if node.marks:
            text += f" marks {self.spell.mapping(node.marks)}"
        if node.primal:
            text += f" primal {self.spell.mapping(node.primal)}"
        origin = node.origin
        if origin is not None:
            text += f" origin({', '.join(map(quote, origin.sources))}"
            text += f"; {', '.join(map(quote, origin.passes))})" if origin.passes else ")"
        return text

    def op(self, op: Op) -> tuple[str, str, str]:
        """Name, attributes, and what was recorded of the primitive; spelled once for all nodes that apply it."""
        table = make_op(op.name)
        standing = table.attributes
        exact = False
        rest: Mapping[str, Attribute] = op.attributes
        if standing:
            if self.full:
                leading = dict(islice(rest.items(), len(standing)))
                exact = [(k, bits(v)) for k, v in leading.items()] != [(k, bits(v)) for k, v in standing.items()]
            else:
                # Versions of MindSpore differ in the width they record a flag with.
                exact = any(_flag(rest.get(k)) != _flag(v) for k, v in standing.items())
            if not exact:
                rest = {k: v for k, v in rest.items() if k not in standing}
        if not self.full:
            rest = {k: v for k, v in rest.items() if k not in _NOISE}
        attributes = " " + self.spell.mapping(rest) if rest or exact else ""
        if exact:
            attributes += " exact"
        recorded = f" instance({quote(op.instance)})" if op.instance else ""
        if op.kind != table.kind:
            recorded += f" kind({op.kind})"
        name = op.name if op.name.isidentifier() and op.name.isascii() else quote(op.name)
        spelled = self._ops[op] = (name, attributes, recorded)
        return spelled

    def type(self, type_: Type) -> str:
        if isinstance(type_, TupleType):
            return str(type_)
        text = self._types.get(type_)
        if text is None:
            text = self._types[type_] = str(type_)
        return text

    def inline(self, constant: Constant) -> str:
        """The constant as it stands where it is used; empty if it gets a line of its own."""
        if self.full or constant.type != type_of(constant.value):
            return ""
        spelled = self.spell.value(constant.value)
        return spelled if len(spelled) <= _INLINE_WIDTH else ""


def _flag(value: Attribute) -> Attribute:
    return value.value if isinstance(value, Number) else value


def _is_inferred(node: Node) -> bool:
    try:
        return infer(node.op, node._operands) == node.type
    except VerifyError:
        return False


def _operands(graph: Graph) -> Iterator[Value]:
    for node in graph:
        yield from node._operands
    if graph.has_result:
        yield graph.result
