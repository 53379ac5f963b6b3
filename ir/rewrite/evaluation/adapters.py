"""Adapters of low rank, as ``lora`` puts them beside layers: added to the weights, and the network without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core.errors import PassError
from ...core.names import ADAPTER, ALPHA, INPUTS_FIRST, lora_a_of, lora_b_of
from ...core.program import Program
from ...core.sites import site
from ..effects.editing import Effects
from .network import Evaluation


@dataclass(frozen=True)
class Adapter:
    """The adapter of a weight: states ``a`` (rank × inputs) and ``b`` (outputs × rank), and what their product is
    multiplied by. ``inputs_first``: the weight is inputs × outputs, and not the other way round."""

    weight: str
    a: str
    b: str
    alpha: float
    rank: int
    inputs_first: bool

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def adapters_of(program: Program) -> dict[str, Adapter]:
    """The adapters of a program by weight; PassError where it has none."""
    found: dict[str, Adapter] = {}
    for node in program.all_nodes():
        if ADAPTER in node.marks and (weight := str(node.marks[ADAPTER])) not in found:
            a, b = lora_a_of(weight), lora_b_of(weight)
            lacking = next((name for name in (weight, a, b) if name not in program.state), None)
            if lacking is not None:
                raise PassError(f"{site(node)} adds an adapter to '{weight}', but the program has no state '{lacking}'")
            rank = program.state[a].shape[0]
            found[weight] = Adapter(weight, a, b, float(node.marks[ALPHA]), rank, bool(node.marks[INPUTS_FIRST]))
    if not found:
        raise PassError("the program has no adapters: compile it with the pass 'lora'")
    return found


def merged_values(program: Program, values: Mapping[str, Any]) -> dict[str, Any]:
    """The state ``values`` with each adapter added to its weight, W + (alpha / rank) B A, and without the adapters; in
    the type of the weight, rounded once."""
    merged = dict(values)
    for weight, adapter in adapters_of(program).items():
        lacking = next((name for name in (weight, adapter.a, adapter.b) if name not in values), None)
        if lacking is not None:
            raise PassError(f"the values lack '{lacking}', which adapters are added by: they come from another program")
        a, b = merged.pop(adapter.a), merged.pop(adapter.b)
        added = adapter.scale * (b.astype("float64") @ a.astype("float64"))
        merged[weight] = (values[weight] + (added.T if adapter.inputs_first else added)).astype(values[weight].dtype)
    return merged


def without_adapters(network: Evaluation) -> Evaluation:
    """``network`` as it was before adapters stood beside its layers."""
    graph = network.graph.clone()[0]
    for body in graph.all_graphs():
        for node in body:
            if ADAPTER in node.marks:
                node.replace_uses(node.operand(0))
    for body in graph.all_graphs():
        Effects(body).commit()
        body.forget_unused_states()
    state = {name: network.program.state[name] for name in graph.states}
    return replace(network, program=replace(network.program, graphs={graph.name: graph}, state=state))
