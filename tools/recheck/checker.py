"""Checks a proof again, by other means than the prover's: it runs both programs on random numbers of a prime field.

The certificate says what each micro-batch adds to the program's own states. The checker sees for itself that it does,
puts a random multiple of it there, runs the update, and compares each state with that of the original, whose gradients
are replaced by their means where they leave the backward part. Once for finite gradients, and once for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

from ...ir.analysis.training.network import network_parts
from ...ir.core.errors import Error
from ...ir.core.graph import Graph, Node
from ...ir.core.prime_field import Num, exact, inverse, made, plus, random, times
from ...ir.core.primitives import CPU
from ...ir.core.program import Program
from ...ir.core.types import TensorType
from .field import Field, Val, flat, is_scalar, number
from .formula import stated
from .machine import Machine


class Wrong(Error):
    """The certificate does not hold for these programs."""


def check(document: Mapping[str, Any], original: Program, program: Program, seed: int) -> None:
    """Checks a certificate; one of a program with variants holds one of each. :class:`Wrong` where it does not hold."""
    for part in document.get("variants", [document]):
        Check(part, original, program, seed).check()


class Check:
    def __init__(self, certificate: Mapping[str, Any], original: Program, program: Program, seed: int):
        self.document, self.original, self.program, self.seed = certificate, original, program, seed
        self.graph: Graph = next(iter(original.graphs.values()))
        self.parts = network_parts(self.graph)
        states = {**program.state, **original.state}
        self.states = [name for name in original.state if name in program.state]
        self.start = {n: made(seed, "state", n, scalar=is_scalar(v.type)) for n, v in states.items()}
        self.seams: dict[str, Num] = {}
        self.known: dict[Any, Num] = {}
        self.idle: set[Any] = set()
        self.kept, self.dropped = (exact(n % 10**9 + 1) for n in random(2, seed, "counts"))
        if certificate["ranks"] is not None and not certificate["drops"]:
            self.kept = made(seed, "counts")  # another number on each rank
        if certificate["counted"]:
            self.kept = exact(certificate["counted"][1])

    def check(self) -> None:
        mine = {name: self.start[name] for name in self.original.state}
        network = self.run(Field(), self.graph, mine, parts=self.parts, network_only=True)
        self.run(Field(), self.graph, mine, parts=self.parts, mean=self.mean)
        scales = [exact(1), *(self.start[name] for name in self.document["scales"])]
        self.idle = {flat(self.seams[name]) for name in self.document["idle"] if name in self.seams}
        frozen = {name: network[name] for name in self.document["frozen"] if name in network}
        seams = {flat(seam): seam for seam in self.seams.values() if flat(seam) not in self.idle}
        for i, seam in enumerate(seams.values()):
            for value in (self.average(seam), *(times(seam, scale) for scale in scales)):
                self.known[flat(value)] = replace(value, of=1 << i)
        for case in (True, False) if self.document["tested"] else (None,):
            field = Field(case, (1 << len(seams)) - 1)
            run, wanted = partial(self.run, field, self.graph, mine, parts=self.parts), network
            if case is not False:
                formula = self.document["formula"]
                wanted = (stated(run, self.mean, mine, formula) if formula else run(mean=self.mean)) | frozen
            batches = self.micro_batches(field, network) if self.document["averaged"] else self.start
            for name in self.document["updating"]:
                graph = self.program.graphs[name]
                found = self.run_both_ways(field, graph, self.held(graph, batches))
                for state in self.states:
                    equal(found[state], wanted[state], f"'{state}' after graph '{name}'")
                for state in self.document["adds"]:
                    equal(found[state], exact(0), f"'{state}' at the end of the cycle")

    def run(self, field: Field, graph: Graph, held: Mapping[str, Val], **how: Any) -> dict[str, Val]:
        """What the graph leaves in the states."""
        self.field = field
        machine = Machine(field, held, self.known, cpu=self.program.target == CPU, **how)
        machine.body(graph, [made(self.seed, "input", i, scalar=is_scalar(v.type)) for i, v in enumerate(graph.inputs)])
        return {name: machine.memory[name] for name in held}

    def run_both_ways(self, field: Field, graph: Graph, held: Mapping[str, Val]) -> dict[str, Val]:
        """A program's graph; in another order of its nodes it must do the same."""
        states = self.run(field, graph, held)
        for name, value in {} if self.document["loose"] else self.run(field, graph, held, late=True).items():
            if flat(value) != flat(states[name]):
                raise Wrong(f"graph '{graph.name}' leaves '{name}' as the order of its effects happens to be")
        return states

    def mean(self, node: Node, value: Num) -> Num:
        """What the update side of the original takes for a gradient."""
        if isinstance(node.type, TensorType) and node.type.dtype.is_float:
            self.seams.setdefault(node.name, value)
        if flat(value) in self.idle:
            return exact(0)
        total, count, each = value, exact(1), exact(1)
        if self.document["averaged"]:
            total, count = times(self.kept, self.average(value)), self.kept
        if self.document["ranks"] is not None:
            total, count, each = (number(self.field.over_ranks(x)) for x in (total, count, each))
        count = each if self.document["reduction"] == "sum" else count
        return times(total, inverse(count), exact(1) if self.document["ranks"] != "sum" else each)

    def average(self, value: Num) -> Num:
        """The mean over the micro-batches of one rank."""
        mean = value if value.exact is not None else made("mean", flat(value))
        return self.known.get(flat(mean), mean)

    def micro_batches(self, field: Field, network: Mapping[str, Val]) -> dict[str, Val]:
        """Runs the graph that takes a micro-batch: one that counts, and one that is dropped."""
        graph, drops = self.program.graphs[self.document["accumulating"]], self.document["drops"]
        count, steps = self.document["counted"] or ("", 2)
        for at, gone in product({0, steps - 2}, (True, False) if drops else (False,)):
            start = {**self.start, count: exact(at)} if count else self.start
            left = self.run_both_ways(Field(not gone, field.gradients) if drops else field, graph, start)
            for name in self.states:
                equal(left[name], network[name], f"'{name}' after a micro-batch")
            for name, adds in (drops if gone else self.document["adds"]).items():
                equal(left[name], plus(start[name], self.sum(adds)), f"what a micro-batch adds to '{name}'")
                if not self.program.state[name].data.is_zero():
                    raise Wrong(f"'{name}' does not begin with 0")
        return left

    def held(self, graph: Graph, batches: Mapping[str, Val]) -> dict[str, Val]:
        """The states before the update. A graph with inputs adds the last micro-batch itself."""
        found: dict[str, Val] = dict(self.start if graph.inputs else batches)
        for name, adds in self.document["adds"].items():
            total = plus(self.sum(adds, self.kept), self.sum(self.document["drops"].get(name, ()), self.dropped))
            found[name] = plus(total, times(self.sum(adds), exact(-1))) if graph.inputs else total
        return found

    def sum(self, adds: Any, count: Num | None = None) -> Num:
        """What one micro-batch adds, or so many, by the mean of the gradient."""
        total = exact(0)
        for seam, factor, scales in adds:
            if seam not in (None, *self.seams) or not self.start.keys() >= set(scales):
                raise Wrong(f"the certificate names '{seam}' and {scales}, which are no gradient and no states")
            value = exact(1) if seam is None else self.seams[seam]
            value = value if count is None else times(count, self.average(value))
            total = plus(total, times(value, exact(Fraction(factor)), *(self.start[s] for s in scales)))
        return total


def equal(found: Val, wanted: Val, what: str) -> None:
    if flat(found) != flat(wanted):
        raise Wrong(f"the certificate does not hold: {what} is not what it should be")
