"""Checks a proof again, by other means than the prover's: it runs both programs on random numbers of a prime field.

The certificate says what each micro-batch adds to the program's own states. The checker sees for itself that it does,
puts a random multiple of it there, runs the update, and compares each state with that of the original, whose gradients
are replaced by their means where they leave the backward part. Once for finite gradients, and once for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from ...ir.analysis.training.network import network_parts
from ...ir.core.errors import Error
from ...ir.core.graph import Graph, Node
from ...ir.core.program import Program
from ...ir.core.types import TensorType
from .field import Field, Num, Val, digest, exact
from .formula import stated
from .machine import Machine, Ref

OUTPUT = "loss"


class Wrong(Error):
    """The certificate does not hold for these programs."""


class Check:
    def __init__(self, certificate: Mapping[str, Any], original: Program, program: Program, seed: int):
        self.document, self.original, self.program, self.seed = certificate, original, program, seed
        self.graph: Graph = next(iter(original.graphs.values()))
        self.parts = network_parts(self.graph)
        self.averaged, self.summed = bool(certificate["averaged"]), certificate["reduction"] == "sum"
        self.scales = set(certificate["scales"])
        self.seams: dict[str, Num] = {}
        self.bits: dict[int, int] = {}
        self.counts = {"N": digest(seed, "N") % 10**9 + 1, "D": digest(seed, "D") % 10**9 + 1}

    # -- runs --------------------------------------------------------------------------------------------------

    def leaf(self, field: Field, name: str) -> Val:
        return Num(1, 1) if name in self.scales else field.leaf("state", name)

    def run(self, field: Field, graph: Graph, held: Mapping[str, Val], **how: Any) -> tuple[dict[str, Val], Any]:
        memory = {name: Ref([value]) for name, value in held.items()}
        for name, ref in memory.items():
            ref.name = name
        inputs = [field.leaf("input", i) for i in range(len(graph.inputs))]
        machine = Machine(field, self.bits, **how)
        result = machine.value(machine.body(graph, inputs, memory))
        return {name: ref[0] for name, ref in memory.items()}, result

    def run_all_ways(self, field: Field, graph: Graph, held: Mapping[str, Val]) -> dict[str, Val]:
        """A program's graph; in another order of its nodes it must do the same."""
        states, _ = self.run(field, graph, held)
        if not self.document["loose"]:
            other, _ = self.run(field, graph, held, late=True)
            for name, value in states.items():
                if not field.same(value, other[name]):
                    raise Wrong(f"graph '{graph.name}' leaves '{name}' as the order of its effects happens to be")
        return states

    def changed(self, field: Field, held: Mapping[str, Val], mean: Any, update: Any) -> dict[str, Val]:
        return self.run(field, self.graph, held, parts=self.parts, mean=mean, update=update)[0]

    def mean(self, node: Node, value: Num) -> Val:
        if node.name not in self.seams and isinstance(node.type, TensorType) and node.type.dtype.is_float:
            self.seams[node.name] = value
        if not self.averaged:
            return value
        factor = exact(self.counts["N"]) if self.summed else exact(1)
        made = self.average(value)
        return Num(made.number * factor.number % (2**61 - 1), 0, None, made.tests)

    def average(self, value: Num) -> Num:
        number = digest("mean", value.number)
        return Num(number, 0, None, self.bits.get(number, 0))

    # -- the check ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        plain = Field(self.seed)
        start = {name: self.leaf(plain, name) for name in {**self.original.state, **self.program.state}}
        own = [name for name in self.program.state if name not in self.original.state]
        mine = {name: start[name] for name in self.original.state}
        how: dict[str, Any] = {"parts": self.parts}
        network, _ = self.run(plain, self.graph, mine, network_only=True, **how)
        self.run(plain, self.graph, mine, mean=self.mean, **how)
        for i, number in enumerate(dict.fromkeys(seam.number for seam in self.seams.values())):
            self.bits[number] = self.bits[digest("mean", number)] = 1 << i
        tested = self.document["tested"]
        every = (1 << len(self.seams)) - 1
        for case in (None,) if not tested else (True, False):
            field = Field(self.seed, case, every)
            wanted, _ = self.run(field, self.graph, mine, mean=self.mean, **how)
            if self.document["formula"] is not None:
                wanted = stated(partial(self.changed, field, mine), self.mean, field, mine, self.document["formula"])
            if case is False:
                wanted = network
            for turn in self.document["turns"]:
                self.turn(field, turn, start, own, wanted, network, case)

    def turn(
        self, field: Field, turn: Mapping[str, Any], start: Mapping[str, Val], own: list[str],
        wanted: Mapping[str, Val], network: Mapping[str, Val], case: bool | None,
    ) -> None:  # fmt: skip
        graph = self.program.graphs[turn["graph"]]
        held = dict(start)
        if self.averaged:
            first = self.program.graphs[self.document["accumulating"]]
            drops = self.document["drops"]
            for gone in (True, False) if drops else (False,):
                one = Field(self.seed, not gone, field.gradients) if drops else field
                run = self.run_all_ways(one, first, start)
                for name in self.original.state:
                    self.equal(one, run[name], network[name], f"'{name}' after a micro-batch")
                for name, adds in self.document["adds"].items():
                    held_before = start[name]
                    assert isinstance(held_before, Num)
                    once = one.plus(held_before, self.sum(one, drops[name] if gone else adds, 1, averaged=False))
                    self.equal(one, run[name], once, f"what a micro-batch adds to '{name}'")
                    if not self.program.state[name].data.is_zero():
                        raise Wrong(f"'{name}' does not begin with 0")
            fused = bool(graph.inputs)
            for name in start:
                adds = self.document["adds"].get(name)
                if adds is None:
                    held[name] = start[name] if fused else run[name]
                else:
                    total = self.sum(field, adds, self.counts["N"], averaged=True)
                    if drops:
                        total = field.plus(total, self.sum(field, drops[name], self.counts["D"], averaged=True))
                    held[name] = field.plus(total, self.sum(field, adds, 1, averaged=False), -1) if fused else total
        found = self.run_all_ways(field, graph, held)
        for name in self.original.state:
            self.equal(field, found[name], wanted[name], f"'{name}' after graph '{graph.name}'")
        for name in self.document["adds"]:
            self.equal(field, found[name], exact(0), f"'{name}' at the end of the cycle")

    def sum(self, field: Field, adds: list[Any], times: int, *, averaged: bool) -> Num:
        total = exact(0)
        for seam, factor, degree in adds:
            value = exact(Fraction(factor) * times)
            if seam is not None:
                one = self.average(self.seams[seam]) if averaged else self.seams[seam]
                value = field.times(value, one)
            total = field.plus(total, Num(value.number, value.degree + degree, value.exact if not degree else None,
                                          value.tests))  # fmt: skip
        return total

    def equal(self, field: Field, found: Val, wanted: Val, what: str) -> None:
        if not field.same(found, wanted):
            raise Wrong(f"the certificate does not hold: {what} is not what it should be")
