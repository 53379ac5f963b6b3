"""What the original does where its updates take what a formula of the certificate gives.

The formula is a graph. What its inputs are is seen in runs of the original: what the update of each weight takes, and
what it would take if all gradients were 0, which is its decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.core.errors import Error
from ...ir.core.graph import Node
from ...ir.core.prime_field import exact, plus, times
from ...ir.core.primitives import facts
from ...ir.text import parse_graph
from .field import Field, Val, flat
from .machine import Machine


def stated(
    run: Callable[..., dict[str, Val]], mean: Any, start: Mapping[str, Any], formula: Mapping[str, Any]
) -> dict[str, Val]:
    """The states after a step of the original with that formula. ``run``: the original, by what gradients become
    (``mean``) and what updates take (``update``)."""
    seen: dict[tuple[str, str], Any] = {("weight", name): value for name, value in start.items()}

    def see(what: str, node: Node, weight: str, taken: list[Any]) -> list[Any]:
        places = {what: facts(node.op).gradient, "rate": facts(node.op).rate}
        seen.update(((key, weight), taken[i]) for key, i in places.items() if i is not None)
        return taken

    run(mean=lambda *_: exact(0), update=lambda *a: see("rest", *a))
    at: dict[Any, str] = {}

    def leaving(node: Node, value: Any) -> Any:
        found = mean(node, value)
        for weight, name in formula["at"].items():
            if node.name == name:
                seen["gradient", weight], at[flat(value)] = found, weight
        return found

    run(mean=leaving, update=lambda *a: see("whole", *a))
    for what, weight in list(seen):
        if what == "whole" and weight not in formula["at"]:
            seen["gradient", weight] = plus(seen[what, weight], times(exact(-1), seen["rest", weight]))
    graph = parse_graph(formula["graph"], "formula")
    taken = [seen.get(tuple(key)) for key in formula["takes"]]
    given = Machine(Field(), {}).body(graph, taken) if None not in taken and len(taken) == len(graph.inputs) else None
    if not isinstance(given, tuple) or len(given) != len(formula["gives"]):
        raise Error("the formula of the certificate takes or gives what no update of the original does")
    gives = dict(zip(map(tuple, formula["gives"]), given, strict=True))

    def replaced(node: Node, weight: str, taken: list[Any]) -> list[Any]:
        known, whole = facts(node.op), "taken" if weight not in formula["at"] else ""
        places = {known.gradient: whole, known.rate: "rate", known.decay: "decay"}
        return [gives.get((places.get(i, ""), weight), v) for i, v in enumerate(taken)]

    def instead(node: Node, value: Any) -> Any:
        return gives.get(("taken", at.get(flat(value))), mean(node, value))

    after: dict[str, Any] = run(mean=instead, update=replaced)
    for what, name in gives:
        if what == "step":
            step = plus(after[name], times(exact(-1), start[name]))
            after[name] = plus(start[name], times(step, gives[what, name]))
    return after
