"""Formulas of what passes change on purpose: each states what training is to be, in terms of the original's own.

A formula knows no pass. It reads the options that the program's record has of one, and the notes of its states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import Error
from ...core.program import Program
from ...core.types import Type
from ...symbolic.execution import Unproved
from ..gradients import Update
from . import average, centralize, clip, freeze, groups, less_bn, lora, normalised, replaced, rounding, schedule
from .statement import Stated, Statement

OF_UPDATES = (clip.PASS, groups.PASS, centralize.PASS)
"""The passes with a formula of what updates take."""
OF_GRAPHS = {
    normalised.PASS: normalised.with_heads, lora.PASS: lora.with_adapters, replaced.PASS: replaced.with_optimizers,
    schedule.PASS: schedule.with_rates,
}  # fmt: skip
"""The passes of which a formula states the whole original anew, and how."""
OF_NETWORKS = (less_bn.PASS, normalised.PASS, lora.PASS, rounding.PASS)
"""The passes by which all that moves is another than the original's: the network computes something else."""
KNOWN = (*OF_UPDATES, average.PASS, freeze.PASS, freeze.FOR_GOOD, *OF_NETWORKS, *OF_GRAPHS)
"""The passes that change training and have a formula."""


def missing(program: Program) -> str:
    """The first pass of a program that changes training and has no formula; "" where there is none."""
    return next((r.name for r in program.reports if r.changed and not r.preserves and r.name not in KNOWN), "")


def restated(original: Program, program: Program) -> Program:
    """The original as a graph that does what formulas of whole graphs say; the proof is against that one.
    :class:`Unproved` where a formula finds no place in it."""
    original = less_bn.without(original, program)
    for name in dict.fromkeys(r.name for r in program.reports if r.name in OF_GRAPHS):
        try:
            original = OF_GRAPHS[name](original, program)
        except Unproved:
            raise
        except (Error, KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise Unproved(f"the record of pass '{name}' does not say what its formula needs: {error}") from None
    return rounding.restated(original, program)


def of_graph(original: Program, program: Program) -> list[Stated]:
    """The formulas of whole graphs, in words. ``original``: as they state it."""
    found = [*less_bn.state(original, program), *rounding.state(program)]
    for formula in (normalised, lora, replaced, schedule):
        found += formula.state(original, program)
    return found


def of_network(program: Program) -> tuple[str, ...]:
    """Those of :data:`OF_NETWORKS` that a program has been through."""
    names = {r.name for r in program.reports if r.changed}
    return tuple(name for name in OF_NETWORKS if name in names)


def gone(original: Program, program: Program) -> set[str]:
    """The states that the original has, and the program on purpose has not."""
    found = less_bn.gone(original, program) | freeze.gone(original, program)
    if any(r.name in (freeze.FOR_GOOD, lora.PASS) for r in program.reports):  # with the last update that took them
        lacking = original.state.keys() - program.state.keys()
        found |= {name for name in lacking if original.state[name].role == "hyperparameter"}
    return found


def write(
    program: Program, updates: Mapping[str, Update], weights: Mapping[str, Type]
) -> tuple[Statement, list[Stated]]:
    """The formulas of a program's passes as one statement, and each of them in words. A gradient is clipped, gets its
    decay, loses its mean, and meets a learning rate, whatever the order of the passes."""
    statement = Statement(updates, weights)
    stated: list[Stated] = []

    def asked(name: str) -> list[dict[str, Any]]:
        return [r.options for r in program.reports if r.name == name and not r.preserves]

    for options in asked(clip.PASS):
        stated += [Stated(clip.PASS, options, clip.says(options), clip.state(statement, options))]
    for options in asked(groups.PASS):
        group = groups.members(options, program.state)
        groups.decay(statement, options, group)
        if words := groups.says(options):
            stated += [Stated(groups.PASS, options, words, group)]
    for options in asked(centralize.PASS)[:1]:
        stated += [Stated(centralize.PASS, options, centralize.SAYS, centralize.state(statement, program.state))]
    for options in asked(groups.PASS):
        groups.rate(statement, options, groups.members(options, program.state))
    statement.finish()
    return statement, stated
