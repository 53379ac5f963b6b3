"""Every step costs a constant number of operations a node: how they are counted, and what a linear cost is."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pytest
from boost_compile.ir.core.graph import Node, Value

DOUBLED = 2.5
"""How much more the second doubling may cost than the first: 2 for a linear cost, 4 for a quadratic one."""


class Counter:
    operations = 0

    def event(self, frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.operations += 1


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counter = Counter()
    snapshot = Node.operands.fget
    assert snapshot is not None

    def operands(node: Node) -> tuple[Value, ...]:
        counter.operations += node.num_operands
        return snapshot(node)  # type: ignore[no-any-return]

    with monkeypatch.context() as patch:
        # A comparison that Python makes itself while it searches a list calls nothing: this one counts.
        patch.setattr(Value, "__eq__", lambda a, b: a is b, raising=False)
        patch.setattr(Value, "__hash__", object.__hash__, raising=False)
        patch.setattr(Node, "operands", property(operands))
        gc.disable()
        sys.setprofile(counter.event)
        try:
            yield counter
        finally:
            sys.setprofile(None)
            gc.enable()


T = TypeVar("T")


Prepare = Callable[[T], Callable[[], object]]
"""Makes, from an input, what is to be counted."""


def assert_linear(monkeypatch: pytest.MonkeyPatch, prepare: Prepare[T], inputs: Sequence[T]) -> None:
    """Of what ``prepare`` makes for three inputs, each twice as large as the one before."""
    prepare(inputs[0])()  # imports what it needs, fills caches
    counts = []
    for given in inputs:
        run = prepare(given)
        with counting(monkeypatch) as counter:
            run()
        counts.append(counter.operations)
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert 0 < second <= DOUBLED * first, f"operations at sizes 1, 2, 4: {counts}"
