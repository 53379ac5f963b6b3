"""Which literals and names of a template become arguments of its class, and what stands for each in the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .identifiers import Identifiers, snake
from .model import Instance, Template


@dataclass
class ClassPlan:
    """A template as a class. ``slots``, ``states`` and ``children`` hold source text: what each literal, each name of
    a state and each argument of a child's constructor is inside ``__init__``. ``varying``: the slots that differ
    between instances. ``prefix``: what the names of an instance's states begin with, where that is an argument."""

    template: Template
    name: str
    arguments: list[str] = field(default_factory=list)
    values: dict[Instance, list[str]] = field(default_factory=dict)
    prefix: dict[Instance, str] | None = None
    uses_state: bool = False
    slots: list[str] = field(default_factory=list)
    varying: set[int] = field(default_factory=set)
    states: list[str] = field(default_factory=list)
    children: list[list[str]] = field(default_factory=list)
    child_prefixes: list[str | None] = field(default_factory=list)


def plan_class(template: Template, name: str, plans: dict[Template, ClassPlan]) -> ClassPlan:
    """The plan of a template whose children have plans."""
    plan = ClassPlan(template, name)
    instances = template.instances
    plan.values = {i: [] for i in instances}
    plan.uses_state = (
        bool(template.state_hints)
        or any(plans[c].uses_state for c in template.children)
        or any("state.constant(" in text for i in instances for text in i.literals)
    )
    _names_of_states(plan, plans)
    identifiers = Identifiers()
    given: dict[tuple[str, ...], str] = {}

    def source(column: Sequence[str], hint: str) -> str:
        """The literal that all instances share, or the argument that takes theirs."""
        if all(text == column[0] for text in column):
            return column[0]
        key = tuple(column)
        if key not in given:
            given[key] = identifiers.claim(snake(hint))
            plan.arguments.append(given[key])
            for instance, text in zip(instances, column, strict=True):
                plan.values[instance].append(text)
        return given[key]

    for n, hint in enumerate(template.state_hints):
        names = {i: i.states[n] for i in instances}
        plan.states.append(_written(plan, names) or source([ascii(name) for name in names.values()], hint))
    for n, slot in enumerate(template.slots):
        plan.slots.append(source([i.literals[n] for i in instances], slot.hint))
        if any(i.literals[n] != instances[0].literals[n] for i in instances):
            plan.varying.add(n)
    for n, child in enumerate(template.children):
        prefixes = plans[child].prefix
        if prefixes is None:
            plan.child_prefixes.append(None)
            continue
        texts = {i: prefixes[i.children[n]] for i in instances}
        plan.child_prefixes.append(_written(plan, texts) or source([ascii(text) for text in texts.values()], "part"))
    for n, child in enumerate(template.children):
        arguments = plans[child].arguments
        plan.children.append([
            source([plans[child].values[i.children[n]][k] for i in instances], argument)
            for k, argument in enumerate(arguments)
        ])  # fmt: skip
    return plan


def _names_of_states(plan: ClassPlan, plans: dict[Template, ClassPlan]) -> None:
    """Sets ``prefix`` where names of states differ between instances in their beginnings only."""
    instances = plan.template.instances
    rows = {i: _texts(i, plans) for i in instances}
    if len({tuple(row) for row in rows.values()}) == 1:
        return
    prefixes = {}
    for instance, row in rows.items():
        common = _common(row) if row else ""
        prefixes[instance] = common[: common.rfind(".") + 1]
    rests = [[text[len(prefixes[i]) :] for text in rows[i]] for i in instances]
    if len(set(prefixes.values())) > 1 and any(len({r[k] for r in rests}) == 1 for k in range(len(rests[0]))):
        plan.prefix = prefixes


def _common(texts: Sequence[str]) -> str:
    """Their common beginning, which the first and the last in order share."""
    first, last = min(texts), max(texts)
    return first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _texts(instance: Instance, plans: dict[Template, ClassPlan]) -> list[str]:
    """The names of an instance's states and the prefixes of its children."""
    inner = [(plans[c.template].prefix or {}).get(c) for c in instance.children]
    return [*instance.states, *(p for p in inner if p is not None)]


def _written(plan: ClassPlan, texts: dict[Instance, str]) -> str | None:
    """Source text for strings that all instances share, but perhaps for their prefixes; None where they differ."""
    first, *others = plan.template.instances
    if all(texts[i] == texts[first] for i in others):
        return ascii(texts[first])
    if plan.prefix is None or not all(texts[i].startswith(plan.prefix[i]) for i in texts):
        return None
    rests = {texts[i][len(plan.prefix[i]) :] for i in texts}
    if len(rests) > 1:
        return None
    rest = rests.pop()
    return f"prefix + {rest!a}" if rest else "prefix"
