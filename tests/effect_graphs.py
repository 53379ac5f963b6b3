"""Random graphs with effects: loads, writes, calls, views and tuples of what they read. What one means is what it
computes in the order of its text."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from tests.execution import Arrays

STATE: Arrays = {"p": np.float32([3, 5]), "q": np.float32([7, 11]), "s": np.float32([13, 17])}
TYPE = "float32[2]"
HEAD = "".join(f"state %{name}: {TYPE}\n" for name in STATE) + f"graph @step(%x: {TYPE}, %go: bool[]) {{\n"
FUNCTIONS = f"""
  func @read(%s: {TYPE}, %v: {TYPE}, %u: umonad) {{
    %l = Load(%s, %u)
    %r = Mul(%l, %v)
    return %r
  }}
  func @write(%s: {TYPE}, %v: {TYPE}, %u: umonad) {{
    %w = AssignAdd(%s, %v, %u)
    %t = UpdateState(%u, %w)
    %n = Neg(%v)
    %r = Depend(%n, %t)
    return %r
  }}
}}"""


def text(seed: int, size: int = 9, late: bool = True) -> str:
    """A graph of about twice ``size`` nodes. Each effect waits for all before it. ``late``: what was read before a
    write may be used after it."""
    draw, body = random.Random(seed), _Body(late)
    for _ in range(size):
        draw.choice(_STATEMENTS)(body, draw, draw.choice(list(STATE)))
    fresh = [value for value, memory in body.memory.items() if memory == value][-4:]
    total = fresh[0]
    for value in fresh[1:]:
        total = body.add(f"Sub({total}, {value})")
    result = body.add(f"Depend({total}, {body.token})")
    return HEAD + "\n".join([*body.lines, f"return {result}"]) + FUNCTIONS


@dataclass
class _Body:
    """``memory``: of each value that may be used, the state or the value whose memory it is. ``loaded``: those that
    come of a Load. They may be used after a write of the state too, and are the new value then."""

    late: bool
    lines: list[str] = field(default_factory=list)
    token: str = "umonad"
    memory: dict[str, str] = field(default_factory=lambda: {"%x": "%x"})
    loaded: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def add(self, text: str) -> str:
        name = f"%n{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def new(self, text: str) -> str:
        name = self.add(text)
        self.memory[name] = name
        return name

    def seen_as(self, value: str, text: str) -> None:
        name = self.add(text)
        self.memory[name] = self.memory[value]
        if value in self.loaded:
            self.loaded.add(name)

    def wrote(self, effect: str, memory: str) -> None:
        self.token = self.add(f"UpdateState({self.token}, {effect})")
        self.written.add(memory)
        self.memory = {v: m for v, m in self.memory.items() if m != memory or (self.late and v in self.loaded)}


def _load(body: _Body, draw: random.Random, state: str) -> None:
    name = body.add(f"Load(%{state}, {body.token})")
    body.memory[name] = state
    body.loaded.add(name)


def _compute(body: _Body, draw: random.Random, state: str) -> None:
    body.new(f"Mul({_value(body, draw)}, {_value(body, draw)})")


def _value(body: _Body, draw: random.Random, but: str = "") -> str:
    return draw.choice([value for value, memory in body.memory.items() if memory != but][-6:])


def _view(body: _Body, draw: random.Random, state: str) -> None:
    value = _value(body, draw)
    body.seen_as(value, f"StopGradient({value}) : {TYPE}")


def _tuple(body: _Body, draw: random.Random, state: str) -> None:
    value = _value(body, draw)
    both = body.add(f"MakeTuple(%x, {value})")
    body.seen_as(value, f"TupleGetItem({both}, 1)")


def _wait(body: _Body, draw: random.Random, state: str) -> None:
    value = _value(body, draw)
    body.seen_as(value, f"Depend({value}, {body.token})")


def _take_without_load(body: _Body, draw: random.Random, state: str) -> None:
    """Nothing orders it against writes, so it stands before all."""
    if state not in body.written:
        body.new(f"Neg(%{state}) : {TYPE}")


def _write(body: _Body, draw: random.Random, state: str) -> None:
    name = draw.choice(("Assign", "AssignSub"))
    write = body.add(f"{name}(%{state}, {_value(body, draw)}, {body.token}) : {TYPE}@{state}")
    body.wrote(write, state)
    body.memory[write] = state


def _write_into_value(body: _Body, draw: random.Random, state: str) -> None:
    own = [value for value, memory in body.memory.items() if memory == value != "%x"]
    if own:
        target = draw.choice(own)
        write = body.add(f"InplaceAddExt({target}, {_value(body, draw, but=target)}, 1, {body.token}) : {TYPE}")
        body.wrote(write, target)
        body.memory[write] = write


def _call(body: _Body, draw: random.Random, state: str) -> None:
    """Directly, of a closure, or of one of two closures. A function does not know that two inputs share memory."""
    given = f"%{state}, {_value(body, draw, but=state)}, {body.token}"
    function = draw.choice(("read", "write"))
    kind = draw.randrange(3)
    if kind == 0:
        result = body.new(f"call(@{function}, {given}) : {TYPE}")
    else:
        closure = body.add(f"Partial(@{function}, {given})")
        if kind == 2:
            closure = body.add(f"Switch(%go, {closure}, {body.add(f'Partial(@read, {given})')})")
        result = body.new(f"call({closure}) : {TYPE}")
    if function == "write":
        body.wrote(result, state)


_STATEMENTS = (
    *(_load, _load, _compute, _compute, _write, _write, _view, _tuple, _wait, _call),
    *(_take_without_load, _write_into_value),
)
