"""The text of the classes. It is Python of a narrow kind: see check.py, which every text passes before it is run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

from ...core.graph import Graph
from ...core.walk import walk
from .check import check_source
from .columns import ClassPlan, plan_class
from .identifiers import Identifiers, attribute, camel, is_plain, snake
from .model import Argument, Primitive, Step, Template
from .templates import Templates, root_instance

_WIDTH = 110


@cache
def prelude() -> str:
    """The fixed beginning of every text: imports, how weights are read and primitives made."""
    return (resources.files(__package__) / "prelude.txt").read_text("ascii")


def write_source(graph: Graph) -> tuple[str, Templates]:
    """A graph as classes, the last one ``Network``, and the constants that stand in the file of the weights."""
    templates = Templates()
    root = root_instance(graph, templates)
    names = Identifiers()
    plans: dict[Template, ClassPlan] = {}
    parts = [prelude()]
    for template in templates.all:
        name = "Network" if template is root.template else names.claim(camel(template.hint))
        plans[template] = plan_class(template, name, plans)
        parts.append(_Class(plans[template], plans).text())
    source = "\n\n".join(parts)
    check_source(source, prelude())
    return source, templates


class _Class:
    def __init__(self, plan: ClassPlan, plans: dict[Template, ClassPlan]):
        self.plan = plan
        self.plans = plans
        self.template = plan.template
        claimed = Identifiers()
        self.states = [claimed.claim(attribute(h)) for h in self.template.state_hints]
        self.primitives = [claimed.claim(attribute(p.hint)) for p in self.template.primitives]
        self.children = [claimed.claim(attribute(h)) for h in self.template.child_hints]
        slots = self.template.slots
        in_construct = sorted({a[1] for a in self._arguments() if a[0] == "slot"})
        held = [n for n in in_construct if n in plan.varying or not slots[n].inline]
        self.fields = {n: claimed.claim(snake(slots[n].hint)) for n in held}

    def _arguments(self) -> list[Argument]:
        """The statements of ``construct``, tuples and elements taken apart."""
        inner = {"tuple": slice(1, None), "item": slice(1, 2)}
        whole = [*self.template.outputs, *(a for s in self.template.steps for a in s.arguments)]
        parts = walk(whole, lambda a: a[inner[a[0]]] if a[0] in inner else ())
        return [a for a in parts if a[0] not in inner]

    def text(self) -> str:
        lines = [f"class {self.plan.name}(nn.Cell):", *self._init(), "", *self._construct()]
        return "\n".join(lines) + "\n"

    # -- __init__ --------------------------------------------------------------------------------------------

    def _init(self) -> list[str]:
        plan = self.plan
        takes = ["state"] if plan.uses_state else []
        takes += ["prefix"] if plan.prefix is not None else []
        lines = [
            *_call("    def __init__(", ["self", *takes, *plan.arguments], "):"),
            "        super().__init__(auto_prefix=False)",
        ]
        for name, text in zip(self.states, plan.states, strict=True):
            lines.append(f"        self.{name} = state[{text}]")
        for n, name in self.fields.items():
            lines.append(f"        self.{name} = {plan.slots[n]}")
        for name, primitive in zip(self.primitives, self.template.primitives, strict=True):
            maker = "function" if primitive.kind == 2 else "primitive"
            lines += _call(f"        self.{name} = {maker}(", self._made(primitive), ")")
        for n, (name, child) in enumerate(zip(self.children, self.template.children, strict=True)):
            inner = self.plans[child]
            given = ["state"] if inner.uses_state else []
            prefix = plan.child_prefixes[n]
            given += [prefix] if prefix is not None else []
            given += [f"{k}={v}" for k, v in zip(inner.arguments, plan.children[n], strict=True)]
            lines += _call(f"        self.{name} = {inner.name}(", given, ")")
        return lines

    def _made(self, primitive: Primitive) -> list[str]:
        slots = self.plan.slots
        odd = {k: n for k, n in primitive.attributes if not is_plain(k)}
        given = [ascii(primitive.name)]
        attributes = primitive.attributes
        if primitive.kind == 2:
            odd, attributes = dict(attributes), ()
        if odd:
            given.append("{" + ", ".join(f"{k!a}: {slots[n]}" for k, n in odd.items()) + "}")
        given += [f"{k}={slots[n]}" for k, n in attributes if k not in odd]
        return given + [f"{k}={slots[n]}" for k, n in primitive.arguments]

    # -- construct -------------------------------------------------------------------------------------------

    def _construct(self) -> list[str]:
        template = self.template
        local = Identifiers()
        names = [local.claim(snake(h)) for h in template.value_hints[: template.inputs]]
        used = {a[1] for a in self._arguments() if a[0] == "value"}
        lines = _call("    def construct(", ["self", *names], "):")
        hints = template.value_hints
        steps = list(template.steps)
        last = steps[-1] if steps and self._is_result(steps[-1]) else None
        for i, step in enumerate(steps if last is None else steps[:-1]):
            if step.kind == "loop":
                self._loop(lines, steps[:i], step, names)
                continue
            for number in step.results:
                assert number == len(names)
                names.append(local.claim(snake(hints[number])) if number in used else "")
            self._assigned(lines, step, names)
        if last is not None:
            lines += self._right("        return ", last, names)
        else:
            returned = [self._argument(a, names) for a in template.outputs]
            text = returned[0] if len(returned) == 1 else "(" + ", ".join(returned) + ")" if returned else "None"
            lines.append("        return " + text)
        return lines

    def _is_result(self, step: Step) -> bool:
        return self.template.outputs == tuple(("value", n) for n in step.results) and step.kind in ("apply", "invoke")

    def _assigned(self, lines: list[str], step: Step, names: list[str], indent: str = "        ") -> None:
        targets = [names[n] for n in step.results]
        head = indent + (", ".join(t or "_" for t in targets) + " = " if any(targets) else "")
        if step.kind != "branch":
            lines += self._right(head, step, names)
            return
        assert step.item is not None
        taken, others = step.arguments[1 : 1 + step.item], step.arguments[1 + step.item :]
        lines.append(f"{indent}if {self._argument(step.arguments[0], names)}:")
        lines += self._right("    " + head, Step("invoke", step.index, taken, step.results), names)
        lines.append(f"{indent}else:")
        lines += self._right("    " + head, Step("invoke", step.other, others, step.results), names)

    def _loop(self, lines: list[str], before: Sequence[Step], step: Step, names: list[str]) -> None:
        lines.append(f"        while {self._argument(step.arguments[0], names)}:")
        inner = "            "
        self._assigned(lines, Step("invoke", step.index, step.arguments[1:], step.results), names, inner)
        for again in before:
            self._assigned(lines, again, names, inner)

    def _right(self, head: str, step: Step, names: list[str]) -> list[str]:
        arguments = [self._argument(a, names) for a in step.arguments]
        if step.kind == "keep":
            return [head + arguments[0]]
        owner = self.primitives if step.kind == "apply" else self.children
        item = "" if step.item is None else f"[{step.item}]"
        return _call(f"{head}self.{owner[step.index]}(", arguments, f"){item}")

    def _argument(self, argument: Argument, names: Sequence[str]) -> str:
        kind = argument[0]
        if kind == "value":
            return names[argument[1]]
        if kind == "state":
            return f"self.{self.states[argument[1]]}"
        if kind == "slot":
            n = argument[1]
            return f"self.{self.fields[n]}" if n in self.fields else self.plan.slots[n]
        if kind == "item":
            return f"{self._argument(argument[1], names)}[{argument[2]}]"
        inner = [self._argument(a, names) for a in argument[1:]]
        return "(" + ", ".join(inner) + (",)" if len(inner) == 1 else ")")


def _call(head: str, arguments: Sequence[str], tail: str) -> list[str]:
    """A call on one line, or with as many arguments on each further line as fit."""
    one = head + ", ".join(arguments) + tail
    if len(one) <= _WIDTH or not arguments:
        return [one]
    indent = " " * (len(head) - len(head.lstrip()) + 4)
    lines, line = [head], indent
    for argument in arguments:
        if len(line) + len(argument) > _WIDTH and line != indent:
            lines.append(line.rstrip())
            line = indent
        line += argument + ", "
    return [*lines, line.rstrip().rstrip(","), indent[4:] + tail]
