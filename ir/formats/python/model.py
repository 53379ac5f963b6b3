"""The model of the source: templates, which become classes, and their instances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...core.primitives.calls import CODES
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
