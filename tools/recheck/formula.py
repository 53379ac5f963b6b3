"""What the original does where its updates take what a formula of the certificate gives.

The formula is a graph. What its inputs are is seen in the original's updates: what each takes, and what it would take
if all gradients were 0, which is its decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.core.errors import Error
from ...ir.core.graph import Node
from ...ir.core.primitives import facts
from ...ir.symbolic.execution import Execution, Outcome
from ...ir.symbolic.numbers import Mean, Numbers, Update, Val, flat, number
from ...ir.symbolic.prime_field import Num, exact, plus, times
from ...ir.text import parse_graph

Key = tuple[str, str]
"""What a value is, and of which weight."""


def formula_of(
    document: Mapping[str, Any], step: Outcome, start: Mapping[str, Num], mean: Mean, execution: Execution,
    numbers: Callable[[Mapping[int, Val], Mean, Update | None], Numbers],
) -> tuple[dict[str, Val], dict[Key, Val]]:  # fmt: skip
    """The states after a ``step`` of the original with that formula, and what it gives. ``numbers``: of terms, by what
    gradients become and what updates take."""
    seen: dict[Key, Any] = {("weight", name): value for name, value in start.items()}
    weights: dict[str, list[str]] = {}
    for weight, node in document["at"].items():
        weights.setdefault(node, []).append(weight)  # the two biases of a recurrent layer have one gradient

    def after(mean: Mean, update: Update) -> dict[str, Val]:
        of = numbers({}, mean, update)
        return {name: of.of(step.states[name]) for name in start}

    def seeing(what: str) -> Update:
        def see(node: Node, weight: str, taken: list[Val]) -> list[Val]:
            places = {what: facts(node.op).gradient, "rate": facts(node.op).rate}
            seen.update({(key, weight): taken[i] for key, i in places.items() if i is not None})
            return taken

        return see

    def leaving(t: int, value: Num) -> Val:
        found = mean(t, value)
        seen.update((("gradient", weight), found) for weight in weights.get(step.seams[t].name, ()))
        return found

    def taking(t: int, value: Num) -> Val:
        own = mean(t, value)
        new = [gives.get(("taken", weight), own) for weight in weights.get(step.seams[t].name, ())]
        if len(set(map(flat, new))) > 1:
            raise Error("the formula of the certificate gives two weights with one gradient not the same")
        return new[0] if new else own

    def replaced(node: Node, weight: str, taken: list[Val]) -> list[Val]:
        places = {facts(node.op).rate: "rate", facts(node.op).decay: "decay"}
        if weight not in document["at"]:
            places[facts(node.op).gradient] = "taken"
        return [gives.get((places.get(i, ""), weight), v) for i, v in enumerate(taken)]

    after(lambda *_: exact(0), seeing("rest"))
    after(leaving, seeing("whole"))
    for what, weight in list(seen):
        if what == "whole" and weight not in document["at"]:
            seen["gradient", weight] = minus(seen[what, weight], seen["rest", weight])
    graph = parse_graph(document["graph"], "formula of the certificate")
    inputs = [execution.terms.make(("given", i)) for i in range(len(graph.inputs))]
    taken = {t: seen[what, of] for t, (what, of) in zip(inputs, document["takes"], strict=False) if (what, of) in seen}
    result = execution.run(graph, {}, inputs).result if len(taken) == len(inputs) == len(document["takes"]) else []
    if len(result) != len(document["gives"]):
        raise Error("the formula of the certificate takes or gives what no update of the original does")
    values = numbers(taken, mean, None)
    gives = {(what, name): values.of(t) for (what, name), t in zip(document["gives"], result, strict=True)}
    states = after(taking, replaced)
    for what, name in gives:
        if what == "step":
            states[name] = plus(start[name], times(minus(states[name], start[name]), number(gives[what, name])))
    return states, gives


def minus(a: Any, b: Any) -> Num:
    return plus(a, times(exact(-1), b))
