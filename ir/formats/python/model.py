"""The model of the source: templates, which become classes, and their instances; and the two tables of how MindSpore's
primitives take their arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ...builders.cast import CODES
from ...core.types import DType

Argument = tuple[Any, ...]
"""``("value", n)``, ``("state", n)``, ``("slot", n)``, ``("tuple", …)``, ``("item", argument, n)``."""

DTYPES = {code: "bool_" if dtype is DType.BOOL else dtype.value for dtype, code in CODES.items()}
"""MindSpore's number of an element type -> its name in ``mindspore``."""


@dataclass(frozen=True)
class Primitive:
    """A primitive of a template. ``hint``: its name in the network; ``attributes``, ``arguments``: names and slots."""

    name: str
    kind: int
    hint: str
    attributes: tuple[tuple[str, int], ...]
    arguments: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Step:
    """One line: ``apply`` primitive ``index``, ``invoke`` child ``index``, or ``keep`` its argument as it is.
    ``results`` are the numbers of the values it makes; ``item``: of a tuple, only this one.

    ``branch``: the first argument decides whether child ``index`` is invoked with the next ``item`` arguments, or child
    ``other`` with the rest. ``loop``: while the first argument holds, ``results`` become those of child ``index``, and
    the steps before this one are done again."""

    kind: str
    index: int
    arguments: tuple[Argument, ...]
    results: tuple[int, ...]
    item: int | None = None
    other: int = 0


@dataclass(frozen=True)
class Slot:
    """A place where a literal stands. ``inline``: it may stand in ``construct``."""

    hint: str
    inline: bool


@dataclass(eq=False)
class Template:
    """The common part of instances. Values are numbered: first the inputs, then results in the order of steps."""

    hint: str
    inputs: int
    primitives: tuple[Primitive, ...]
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Argument, ...]
    children: tuple[Template, ...]
    state_hints: tuple[str, ...]
    child_hints: tuple[str, ...]
    value_hints: tuple[str, ...]
    number: int
    instances: list[Instance] = field(default_factory=list)


@dataclass(eq=False)
class Instance:
    """A template with its literals (source text), names of states, and instances of the templates within."""

    template: Template
    literals: tuple[str, ...]
    states: tuple[str, ...]
    children: tuple[Instance, ...]


@cache
def constructor_arguments() -> dict[str, tuple[str, ...]]:
    """Constructor arguments of MindSpore's primitive functions (2.10): a MindIR holds them as the last operands."""
    text = (resources.files(__package__) / "constructor_arguments.txt").read_text("ascii")
    return {name: tuple(names) for name, *names in map(str.split, text.splitlines())}


@cache
def handled_operands() -> dict[tuple[str, int], tuple[str, str]]:
    """By primitive and position: operands that a call takes as a type (``dtype``) or a word (``enum``), and a MindIR
    holds as a number; with their names (MindSpore 2.10)."""
    text = (resources.files(__package__) / "handled_operands.txt").read_text("ascii")
    rows = (line.split() for line in text.splitlines())
    return {(name, int(at)): (kind, argument) for name, kind, argument, at in rows}
