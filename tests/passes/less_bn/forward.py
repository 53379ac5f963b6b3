"""Forward parts written down layer by layer, for what looks at their structure alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from boost_compile.ir.analysis.training.network import FORWARD

from tests.graphs import graph


class Network:
    """Each layer takes names of values and gives one; a BatchNorm bears the name that it is given."""

    def __init__(self, *inputs: str) -> None:
        self.inputs, self.lines = inputs or ("x",), list[str]()
        self.image = "float32[1,2,4,4]"

    def node(self, op: str, *operands: str, type_: str = "", name: str = "") -> str:
        type_ = type_ or self.image
        name = name or f"n{len(self.lines)}"
        self.lines.append(f"  %{name} = {op}({', '.join('%' + v for v in operands)}) : {type_} @f")
        return name

    def conv(self, x: str) -> str:
        return self.node("Conv2D", x, "w")

    def relu(self, x: str) -> str:
        return self.node("ReLU", x)

    def norm(self, name: str, x: str) -> str:
        self.node("BatchNorm", x, "w", type_=f"({self.image}, float32[2])", name=name)
        self.lines.append(f"  %{name}.y = TupleGetItem(%{name}, 0) : {self.image} @f")
        return f"{name}.y"

    def add(self, *operands: str) -> str:
        return self.node("Add", *operands)

    def tuple(self, *operands: str) -> str:
        return self.node("MakeTuple", *operands, type_=f"({', '.join([self.image] * len(operands))})")

    def anatomy(self, result: str) -> Any:
        """What stands for the anatomy of a training graph: all is forward."""
        inputs = ", ".join(f"%{name}: {self.image}" for name in self.inputs)
        states = "state %w: float32[2,2,1,1] role=weight"
        made = graph(f"{states}\ngraph @step({inputs}) {{\n" + "\n".join(self.lines) + f"\n  return %{result}\n}}")
        return SimpleNamespace(graph=made, part=lambda _: FORWARD)
