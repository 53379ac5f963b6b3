"""A random program as data: what is drawn, printed, built, judged and shrunk. As JSON it is one line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

Options = dict[str, Any]
Shape = tuple[int, ...]
"""Without the batch dimension."""


@dataclass(frozen=True)
class Input:
    """`kind`: "float" (normally distributed) or "tokens" (integers below `bound`)."""

    kind: str
    shape: Shape
    bound: int = 0


@dataclass(frozen=True)
class Call:
    """One use of a layer. Values are numbered: the inputs first, then the result of each call.

    `layer` is the number of the layer that is called, `how` "call", or "tied" (a product with its weight, transposed),
    or "decode" (a product with its embedding table).
    """

    layer: int
    sources: tuple[int, ...]
    how: str = "call"


@dataclass(frozen=True)
class Layer:
    """`op` names a constructor of `layers.py`, `options` are its arguments. `half`: it computes in float16."""

    op: str
    options: Options
    half: bool = False


@dataclass(frozen=True)
class Network:
    """The last call's value is the network's output, of `width` numbers for each row."""

    inputs: tuple[Input, ...]
    layers: tuple[Layer, ...]
    calls: tuple[Call, ...]
    width: int


@dataclass(frozen=True)
class Part:
    """A loss, an optimizer or a training cell: its name and its options."""

    name: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """`pipeline` is the passes, in order; `calls` says how many of them each call of compile gets."""

    network: Network
    loss: Part
    optimizer: Part
    cell: Part
    batch: int
    pipeline: tuple[str, ...]
    calls: tuple[int, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Plan:
        document = json.loads(text)
        network = document["network"]
        inputs = tuple(Input(i["kind"], tuple(i["shape"]), i["bound"]) for i in network["inputs"])
        layers = tuple(Layer(**layer) for layer in network["layers"])
        calls = tuple(Call(c["layer"], tuple(c["sources"]), c["how"]) for c in network["calls"])
        return Plan(
            Network(inputs, layers, calls, network["width"]),
            Part(**document["loss"]),
            Part(**document["optimizer"]),
            Part(**document["cell"]),
            document["batch"],
            tuple(document["pipeline"]),
            tuple(document["calls"]),
        )

    def __str__(self) -> str:
        layers = [f"{layer.op}{'(half)' if layer.half else ''}" for layer in self.network.layers]
        return (
            f"{'+'.join(i.kind for i in self.network.inputs)} > {' '.join(layers)} > {self.loss.name}; "
            f"{self.optimizer.name}; {self.cell.name}; {','.join(self.pipeline) or 'no passes'}"
        )
