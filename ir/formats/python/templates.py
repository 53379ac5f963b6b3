"""Regions as classes and instances. Regions that compute the same but for literals, weights and shapes of weights are
instances of one template, which becomes a class; what differs becomes arguments of its constructor."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ...analysis.functions.calls import Target, reachable_functions
from ...core.attributes import Attribute, TensorValue, bits
from ...core.errors import PassError
from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ...core.op import CALL, Op
from ...core.predicates import is_random
from ...core.primitives import Family, facts
from ...core.primitives.calls import constructor_arguments, handled_operands
from ...core.types import is_monad
from .functions import call_of, calls_itself
from .identifiers import camel, snake
from .literals import is_number, is_small, literal
from .model import DTYPES, Argument, Instance, Primitive, Slot, Step, Template
from .order import resolved
from .regions import Layout, Region, lay_out

_DEEPEST = 8
"""So many brackets are written within each other at most."""
_DEEPEST_CALLS = 40


class Templates:
    """Collects templates, instances and the constants that do not stand in the source."""

    def __init__(self) -> None:
        self.all: list[Template] = []
        self.constants: list[TensorValue] = []
        self._constants: dict[Hashable, int] = {}
        self._templates: dict[Hashable, Template] = {}
        self._instances: dict[Hashable, Instance] = {}
        self.layouts: dict[Graph, Layout] = {}
        self.functions: dict[Hashable, Instance] = {}

    def constant(self, value: TensorValue) -> int:
        """The number of a constant tensor in the file of the weights."""
        key = bits(value)
        if key not in self._constants:
            self._constants[key] = len(self.constants)
            self.constants.append(value)
        return self._constants[key]

    def instance(self, draft: _Draft, hint: str, inputs: int, outputs: tuple[Argument, ...]) -> Instance:
        """The instance that a draft describes; the same object for the same one."""
        children = tuple(draft.children)
        shape = (
            hint, inputs, tuple(draft.primitives), tuple(s.inline for s in draft.slots), tuple(draft.steps), outputs,
            tuple(c.template.number for c in children), len(draft.states),
        )  # fmt: skip
        template = self._templates.get(shape)
        if template is None:
            template = self._templates[shape] = Template(
                hint, inputs, shape[2], tuple(draft.slots), shape[4], outputs, tuple(c.template for c in children),
                tuple(name.rsplit(".", 1)[-1] for name in draft.states), tuple(draft.child_hints),
                tuple(draft.value_hints), len(self.all),
            )  # fmt: skip
            self.all.append(template)
        key = (template.number, tuple(draft.literals), tuple(draft.states), tuple(map(id, children)))
        found = self._instances.get(key)
        if found is None:
            found = Instance(template, tuple(draft.literals), tuple(draft.states), children)
            self._instances[key] = found
            template.instances.append(found)
        return found


class _Draft:
    """A region on its way to an instance."""

    def __init__(self, layout: Layout, templates: Templates, frame: Frame):
        self.layout = layout
        self.templates = templates
        self.frame = frame
        self.numbers: dict[Value, int] = {}
        self.value_hints: list[str] = []
        self.folded: dict[Value, Argument] = {}
        self.depth: dict[Argument, int] = {}
        self.primitives: list[Primitive] = []
        self.slots: list[Slot] = []
        self.literals: list[str] = []
        self.states: list[str] = []
        self.steps: list[Step] = []
        self.children: list[Instance] = []
        self.child_hints: list[str] = []
        self._primitives: dict[Hashable, int] = {}
        self._states: dict[str, int] = {}
        self._children: dict[Instance, int] = {}

    def number(self, value: Value, hint: str) -> int:
        self.numbers[value] = len(self.value_hints)
        self.value_hints.append(hint)
        return self.numbers[value]

    def slot(self, value: Attribute, hint: str, where: str) -> int:
        large = isinstance(value, TensorValue) and not is_small(value)
        text = f"state.constant({self.templates.constant(value)})" if large else literal(value, where)
        self.slots.append(Slot(hint, is_number(value)))
        self.literals.append(text)
        return len(self.slots) - 1

    def argument(self, value: Value, user: str) -> Argument:
        if value in self.folded:
            return self.folded[value]
        if value in self.numbers:
            return ("value", self.numbers[value])
        name = self.frame.state_name(value)
        if name is not None:
            if name not in self._states:
                self._states[name] = len(self.states)
                self.states.append(name)
            return ("state", self._states[name])
        if isinstance(value, Constant):
            return ("slot", self.slot(value.value, "constant", user))
        if isinstance(value, GraphRef):
            raise PassError(
                f"{user}: function '{value.name}' is passed on as a value; this cannot be written as Python"
            )
        raise PassError(f"{user}: operand %{value.name} is not known where it is used")

    def result(self) -> Argument:
        """The result of the graph; None where it has effects only."""
        value = self.layout.result
        if is_monad(value.type):
            return ("slot", self.slot(None, "nothing", "the result"))
        return self.argument(value, "the result")

    def region(self, region: Region) -> None:
        for item in region.items:
            if isinstance(item, Region):
                self._invoke(item)
            elif item.op.name == "TupleGetItem":
                self._pick(item)
            elif item.op.name == "MakeTuple":
                self._pack(item)
            elif item.op is CALL:
                self._call(item)
            else:
                self._apply(item)

    def _pick(self, node: Node) -> None:
        if node in self.numbers:  # folded into the step that makes the tuple
            return
        source, index = self.layout.operands[node]
        if not isinstance(index, Constant) or not isinstance(index.value, int):
            raise PassError(
                f"{_where(node)}: takes an element whose index is computed; this cannot be written as Python"
            )
        self._folded(node, ("item", self.argument(source, _where(node)), index.value), True)

    def _pack(self, node: Node) -> None:
        packed = tuple(self.argument(v, _where(node)) for v in self.layout.operands[node])
        self._folded(node, ("tuple", *packed), self.layout.uses.get(node, 0) == 1)

    def _folded(self, node: Node, argument: Argument, fold: bool) -> None:
        """Stands where the value is used, or on a line of its own: where brackets would pile up, too."""
        inner = max((self.depth.get(a, 0) for a in argument[1:]), default=0)
        if fold and inner < _DEEPEST:
            self.folded[node] = argument
            self.depth[argument] = inner + 1
        else:
            self.steps.append(Step("keep", 0, (argument,), (self.number(node, "values"),)))

    def _apply(self, node: Node) -> None:
        where = _where(node)
        op = Op("TensorMove", kind=1) if node in self.layout.copies else node.op
        if facts(op).family is Family.CODE:
            raise PassError(f"{where}: primitive {op.name} runs code from the file; it is not written as Python")
        operands = self.layout.operands[node]
        names = constructor_arguments().get(op.name, ()) if op.kind == 2 else ()
        first = len(operands) - len(names)
        if first < 0 or not all(isinstance(v, Constant) for v in operands[first:]):
            raise PassError(
                f"{where}: {op.name} needs {', '.join(names)} as constants at the end of its operands, which MindSpore "
                "takes when the primitive is made"
            )
        given = [v.value for v in operands[first:] if isinstance(v, Constant)]
        index = self._primitive(op, names, given, where, shared=not is_random(node))
        arguments = tuple(self._operand(op, i, v, where) for i, v in enumerate(operands[:first]))
        item, result = self._single_item(node)
        number = self.number(result, op.name)
        self.steps.append(Step("apply", index, arguments, (number,), item))

    def _operand(self, op: Op, position: int, value: Value, where: str) -> Argument:
        handled = handled_operands().get((op.name, position)) if op.kind == 2 else None
        number = value.value if isinstance(value, Constant) else None
        if handled is None or not isinstance(number, int):
            return self.argument(value, where)
        kind, name = handled
        self.slots.append(Slot(name, inline=False))
        if kind == "enum":
            self.literals.append(f"word({op.name!a}, {name!a}, {number})")
        elif number in DTYPES:
            self.literals.append(f"ms.{DTYPES[number]}")
        else:
            raise PassError(f"{where}: {number} is no type of a tensor")
        return ("slot", len(self.slots) - 1)

    def _single_item(self, node: Node) -> tuple[int | None, Value]:
        """Where of a tuple only one element is used, and next to it: its index, and the node that takes it."""
        users = [u for u in node.uses if u in self.layout.position]
        if self.layout.uses.get(node, 0) != 1 or len(users) != 1 or users[0].op.name != "TupleGetItem":
            return None, node
        index = users[0].operand(1)
        if self.layout.position[users[0]] != self.layout.position[node] + 1 or not isinstance(index, Constant):
            return None, node
        return index.value, users[0]

    def _primitive(self, op: Op, names: tuple[str, ...], given: list[Attribute], where: str, shared: bool) -> int:
        attributes = {k: v for k, v in op.attributes.items() if op.kind != 2 or not k.startswith("side_effect_")}
        key = (op.name, op.kind, tuple((k, bits(v)) for k, v in attributes.items()), tuple(map(bits, given)))
        if not shared or key not in self._primitives:
            self._primitives[key] = len(self.primitives)
            self.primitives.append(
                Primitive(
                    op.name,
                    op.kind,
                    op.instance or snake(op.name),
                    tuple((k, self.slot(v, k, f"{where}, attribute {k!r}")) for k, v in attributes.items()),
                    tuple((k, self.slot(v, k, f"{where}, argument {k!r}")) for k, v in zip(names, given, strict=True)),
                )
            )
        return self._primitives[key]

    def _invoke(self, region: Region) -> None:
        child, inputs, outputs = region_instance(region, self.layout, self.templates, self.frame)
        hint = component_name(region.component)
        index = self.child(child, hint)
        arguments = tuple(self.argument(v, f"'{region.component}'") for v in inputs)
        results = tuple(self.number(v, hint) for v in outputs)
        self.steps.append(Step("invoke", index, arguments, results))

    def child(self, child: Instance, hint: str) -> int:
        if child not in self._children:
            self._children[child] = len(self.children)
            self.children.append(child)
            self.child_hints.append(hint)
        return self._children[child]

    # -- functions -------------------------------------------------------------------------------------------

    def _call(self, node: Node) -> None:
        where = _where(node)
        call = call_of(node)
        if call.condition is None and self.frame.head is call.targets[0].function:
            self._next_round(node, call.targets[0])
            return
        hints = ("called",) if call.condition is None else ("when_true", "when_false")
        invoked = [self.function(t, hint, where) for t, hint in zip(call.targets, hints, strict=True)]
        index, arguments = invoked[0]
        if call.condition is None:
            self.steps.append(Step("invoke", index, arguments, (self.number(node, "result"),)))
            return
        condition = self.argument(resolved(call.condition, self.layout.copies), where)
        other, rest = invoked[1]
        result = (self.number(node, "result"),)
        self.steps.append(Step("branch", index, (condition, *arguments, *rest), result, len(arguments), other))

    def function(self, target: Target, hint: str, where: str) -> tuple[int, tuple[Argument, ...]]:
        """The child that a function is, and the arguments of its construct: state is bound when it is made."""
        pairs = zip(target.function.inputs, target.arguments, strict=False)
        taken = [(f, resolved(v, self.layout.copies)) for f, v in pairs if not is_monad(f.type)]
        states = {f: n for f, v in taken if (n := self.frame.state_name(v)) is not None}
        child = function_instance(target.function, states, hint, self.templates, self.frame, where)
        arguments = tuple(self.argument(v, where) for f, v in taken if f not in states)
        return self.child(child, hint), arguments

    def _next_round(self, node: Node, target: Target) -> None:
        """The call with which the body of a loop ends: its arguments are the values of the next round."""
        given: list[Argument] = []
        for formal, value in zip(target.function.inputs, target.arguments, strict=False):
            if is_monad(formal.type):
                continue
            value = resolved(value, self.layout.copies)
            bound = self.frame.head_states.get(formal)
            if bound is None:
                given.append(self.argument(value, _where(node)))
            elif self.frame.state_name(value) != bound:
                raise PassError(f"{_where(node)}: a loop that goes on with another state cannot be written as Python")
        if self.layout.result is not node:
            raise PassError(f"{_where(node)}: recursion that is no loop cannot be written as Python")
        packed = given[0] if len(given) == 1 else ("tuple", *given)
        self.steps.append(Step("keep", 0, (packed,), (self.number(node, "following"),)))


@dataclass(frozen=True)
class Frame:
    """Where in functions something stands: the inputs of its function that stand for state, by the state's name, and
    the loop that the function is in the body of: its head and the head's inputs that stand for state."""

    states: Mapping[Input, str] = field(default_factory=dict)
    head: Graph | None = None
    head_states: Mapping[Input, str] = field(default_factory=dict)
    depth: int = 0

    def state_name(self, value: Value) -> str | None:
        if isinstance(value, State):
            return value.name
        return self.states.get(value) if isinstance(value, Input) else None


def function_instance(
    function: Graph, states: Mapping[Input, str], hint: str, templates: Templates, frame: Frame, where: str
) -> Instance:
    """The instance that a function is, where some of its inputs stand for state."""
    key = (function.name, tuple(sorted((f.name, n) for f, n in states.items())), frame.head and frame.head.name)
    if key in templates.functions:
        return templates.functions[key]
    if frame.depth > _DEEPEST_CALLS:
        raise PassError(f"{where}: functions call each other more than {_DEEPEST_CALLS} deep")
    inner = Frame(states, frame.head, frame.head_states, frame.depth + 1)
    if calls_itself(function) and not (frame.head is not None and frame.head.name in reachable_functions(function)):
        made = _loop_instance(function, states, templates, inner, where)
    else:
        made = _whole_instance(_laid_out(function, templates), camel(hint), templates, inner)
    templates.functions[key] = made
    return made


def _whole_instance(layout: Layout, hint: str, templates: Templates, frame: Frame) -> Instance:
    draft, inputs = _begun(layout, templates, frame)
    draft.region(layout.root)
    return templates.instance(draft, hint, len(inputs), (draft.result(),))


def _loop_instance(
    head: Graph, states: Mapping[Input, str], templates: Templates, frame: Frame, where: str
) -> Instance:
    """A loop: its head computes the condition, and calls the body or what comes after."""
    layout = _laid_out(head, templates)
    call = layout.result
    if not isinstance(call, Node) or call.op is not CALL or call_of(call).condition is None:
        raise PassError(f"{where}: function '{head.name}' calls itself, but not as a loop does")
    chosen = call_of(call)
    bodies = [head.name in reachable_functions(t.function) for t in chosen.targets]
    if bodies != [True, False] or chosen.condition is None:
        raise PassError(f"{where}: a loop that goes on when its condition fails cannot be written as Python")
    draft, inputs = _begun(layout, templates, frame)
    draft.region(Region("", 0, layout.root.end, [n for n in layout.root.members() if n is not call]))
    condition = draft.argument(resolved(chosen.condition, layout.copies), where)
    outer = draft.frame
    draft.frame = Frame(states, head, states, frame.depth)
    body, given = draft.function(chosen.targets[0], "body", where)
    draft.frame = outer
    after, rest = draft.function(chosen.targets[1], "after", where)
    results = tuple(draft.numbers[v] for v in inputs)
    draft.steps.append(Step("loop", body, (condition, *given), results))
    draft.steps.append(Step("invoke", after, rest, (draft.number(call, "result"),)))
    return templates.instance(draft, "Loop", len(inputs), (draft.result(),))


def _begun(layout: Layout, templates: Templates, frame: Frame) -> tuple[_Draft, list[Input]]:
    """The draft of a whole graph, and the inputs that its construct takes."""
    draft = _Draft(layout, templates, frame)
    inputs = [v for v in layout.graph.inputs if not is_monad(v.type) and v not in frame.states]
    for value in inputs:
        draft.number(value, value.name)
    return draft, inputs


def _laid_out(graph: Graph, templates: Templates) -> Layout:
    if graph not in templates.layouts:
        templates.layouts[graph] = lay_out(graph)
    return templates.layouts[graph]


def region_instance(
    region: Region, layout: Layout, templates: Templates, frame: Frame
) -> tuple[Instance, list[Value], list[Value]]:
    """The instance that a region is, the values it takes, and those it gives."""
    members = region.members()
    inputs: dict[Value, None] = {}
    for node in members:
        for value in layout.operands[node]:
            inside = isinstance(value, Node) and layout.position[value] >= region.start
            known = isinstance(value, (Constant, GraphRef)) or frame.state_name(value) is not None
            if not inside and not known:
                inputs[value] = None
    outputs: list[Value] = [n for n in members if layout.last_use.get(n, -1) >= region.end]
    draft = _Draft(layout, templates, frame)
    for i, value in enumerate(inputs):
        draft.number(value, "x" if i == 0 else f"x{i + 1}")
    draft.region(region)
    returned = tuple(draft.argument(v, f"'{region.component}'") for v in outputs)
    kind = region.component.partition("-")[2] or region.component
    return templates.instance(draft, kind, len(inputs), returned), list(inputs), outputs


def root_instance(graph: Graph, templates: Templates) -> Instance:
    """The instance that is the whole graph."""
    return _whole_instance(_laid_out(graph, templates), "", templates, Frame())


def component_name(component: str) -> str:
    """``conv1`` of ``conv1-Conv2d``; the class where the name is a number."""
    name, _, kind = component.partition("-")
    return name if any(c.isalpha() for c in name) else kind or name


def _where(node: Node) -> str:
    return f"node %{node.name} ({node.op.name}, scope '{node.scope}')"
