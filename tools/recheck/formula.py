"""What the original does where its updates take what a formula of the certificate gives.

The formula is a graph. What its inputs are is seen in runs of the original: what the update of each weight takes, and
what it would take if all gradients were 0, which is its decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.core.errors import Error
from ...ir.core.graph import Node
from ...ir.core.primitives import facts
from ...ir.text import parse_graph
from .field import Field, Num, Val, exact
from .machine import Machine

Run = Callable[[Any, Any], dict[str, Val]]
"""The states after a run of the original, by what gradients become (``mean``) and what updates take (``update``)."""


def stated(run: Run, mean: Any, field: Field, start: Mapping[str, Val], formula: Mapping[str, Any]) -> dict[str, Val]:
    """The states after a step of the original with that formula."""
    seen: dict[tuple[str, str], Any] = {("weight", name): value for name, value in start.items()}

    def see(what: str, node: Node, weight: str, taken: list[Val]) -> list[Val]:
        gradient, rate = facts(node.op).gradient, facts(node.op).rate
        assert gradient is not None
        seen[what, weight] = taken[gradient]
        if rate is not None:
            seen["rate", weight] = taken[rate]
        return taken

    run(lambda *_: exact(0), lambda *a: see("rest", *a))
    run(mean, lambda *a: see("gradient", *a))
    for what, weight in list(seen):
        if what == "gradient" and isinstance(seen[what, weight], Num):
            seen[what, weight] = field.plus(seen[what, weight], seen["rest", weight], -1)
    graph = parse_graph(formula["graph"], "formula")
    taken = [seen.get((what, weight)) for what, weight in formula["takes"]]
    if None in taken or len(taken) != len(graph.inputs):
        raise Error("the formula of the certificate takes what no update of the original takes")
    given = Machine(field).body(graph, taken, {})
    if not isinstance(given, tuple) or len(given) != len(formula["gives"]):
        raise Error("the formula of the certificate does not give what it says")
    gives = dict(zip(map(tuple, formula["gives"]), given, strict=True))

    def replaced(node: Node, weight: str, taken: list[Val]) -> list[Val]:
        known = facts(node.op)
        places = {known.gradient: "taken", known.rate: "rate", known.decay: "decay"}
        return [gives.get((places[i], weight), v) if i in places else v for i, v in enumerate(taken)]

    after = run(mean, replaced)
    for (what, name), factor in gives.items():
        if what == "step":
            step: Any = field.plus(after[name], start[name], -1)  # type: ignore[arg-type]
            after[name] = field.plus(start[name], field.times(step, factor))  # type: ignore[arg-type]
    return after
