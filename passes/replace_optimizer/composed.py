"""What optimizers that stand here are made with: a graph that updates weights from given gradients, and its state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...ir.builders.nodes import Nodes
from ...ir.builders.reduce import scalar_sum
from ...ir.core.attributes import scalar_tensor
from ...ir.core.data import BytesData, Data, from_numpy, numbers
from ...ir.core.errors import OptionError, nearest
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.program import Entry, Program, Schedule, StateVariable
from ...ir.core.spec import Spec
from ...ir.core.types import DType, TensorType
from ...ir.rewrite.effects.editing import Effects
from ..step.rates import NAME

STEP = "global_step"
ONE = BytesData(memoryview(b"\x00\x00\x80\x3f"))
"""1.0 as float32."""


class Composed:
    """An optimizer of portable primitives, while it is made. All arithmetic is float32: gradients and weights in half
    precision are widened, and the new weight is rounded. Its step count and its learning rate are states called as
    MindSpore's, ``global_step`` and ``learning_rate``; where names are ``taken``, all get a number in front.
    ``decaying``: the weights that its decay is for."""

    def __init__(
        self,
        spec: Spec,
        weights: Sequence[StateVariable],
        names: Sequence[str],
        taken: Collection[str],
        decaying: Collection[str],
    ):
        self.options = spec.options
        self.decaying = decaying
        self.graph = Graph("update")
        self.graph.result = self.graph.constant(scalar_tensor("float32", 0.0))
        self.fx = Effects(self.graph)
        self.n = Nodes(self.graph, spec.name)
        self.program = Program({"update": self.graph}, {}, Schedule((Entry("update"),)))
        own = [f"{name}.{w.name}" for name in names for w in weights] + [STEP, NAME]
        number, self.prefix = 1, ""
        while any(self.prefix + name in taken for name in own):
            number += 1
            self.prefix = f"optimizer{number}."
        self.weights = list(weights)
        self.gradients: dict[str, Value] = {}
        for weight in weights:
            self.program.add_state(weight.name, weight.type, "weight", weight.data)
            gradient = self.graph.add_input(f"gradient.{weight.name}", weight.type)
            self.gradients[weight.name] = self.n.cast(gradient, DType.FLOAT32)

    def number(self, name: str) -> float:
        return float(self.options[name])

    # -- state -----------------------------------------------------------------------------------------------

    def scalar(self, name: str, initial: Data | None = None) -> Node:
        """What a state of one number holds before the update."""
        type_ = TensorType(DType.FLOAT32, ())
        self.program.add_state(self.prefix + name, type_, "hyperparameter", initial)
        return self.fx.load(self.graph.state(self.prefix + name, type_))

    def rate(self) -> Node:
        """The learning rate."""
        data = scalar_tensor("float32", self.number("lr")).data
        return self.scalar(NAME, data)

    def count(self) -> None:
        """Counts this update."""
        name, type_ = f"{self.prefix}{STEP}", TensorType(DType.INT32, ())
        self.program.add_state(name, type_, "hyperparameter")
        self.fx.append("AssignAdd", [self.graph.state(name, type_), self.n.number(1, "int32")])

    def power(self, name: str, beta: float) -> Node:
        """1 - beta to the number of updates: what a mean that began at zero lacks."""
        old = self.scalar(name, ONE)
        new = self.n.op("Mul", old, self.n.number(beta))
        self.store(name, new)
        return self.n.op("Sub", self.n.number(1.0), new)

    def slot(self, name: str, weight: StateVariable, initial: Data | None = None) -> Node:
        """What a slot of a weight, a float32 tensor of its shape, holds before the update."""
        full, type_ = f"{self.prefix}{name}.{weight.name}", TensorType(DType.FLOAT32, weight.shape)
        self.program.add_state(full, type_, "slot", initial, weight.name)
        return self.fx.load(self.graph.state(full, type_))

    def store(self, name: str, value: Value) -> None:
        """Writes a state that :meth:`scalar` or :meth:`slot` has made (``name``: for a slot, with the weight's)."""
        self.fx.append("Assign", [self.graph.state(self.prefix + name), value])

    def weight(self, weight: StateVariable) -> Value:
        """A weight before the update."""
        return self.n.cast(self.fx.load(self.graph.state(weight.name, weight.type)), DType.FLOAT32)

    def store_weight(self, weight: StateVariable, value: Value) -> None:
        self.fx.append("Assign", [self.graph.state(weight.name), self.n.cast(value, weight.dtype)])

    # -- arithmetic ------------------------------------------------------------------------------------------

    def mean(self, old: Value, new: Value, beta: float) -> Value:
        """beta · old + (1 - beta) · new."""
        return self.n.op("Add", self.n.scaled(old, beta), self.n.scaled(new, 1.0 - beta))

    def norm(self, value: Value) -> Value:
        """The Euclidean norm of a tensor."""
        return self.n.op("Sqrt", scalar_sum(self.graph, self.n.op("Square", value), scope=self.n.scope))

    def decayed(self, weight: StateVariable, value: Value, step: Value, decay: float) -> Value:
        """``step`` and what the weight loses by its decay."""
        if not decay or weight.name not in self.decaying:
            return step
        return self.n.op("Add", step, self.n.scaled(value, decay))

    def done(self) -> Program:
        self.fx.commit()
        for node in self.graph:  # a cell of its own, as MindSpore exports an optimizer
            node.scope = f"Default/optimizer-{self.n.scope}/{node.op.name}"
        return self.program


def widened(weight: StateVariable) -> Data:
    """The initial value of a weight in float32."""
    return from_numpy(numbers(weight.type, weight.data).astype("float32"))[1]


def options_of(spec: Spec, defaults: Mapping[str, float | bool], rate: float | None) -> Spec:
    """The optimizer with all its options; OptionError for others, and for those that are no numbers."""
    given = {{NAME: "lr"}.get(key.replace("-", "_"), key.replace("-", "_")): v for key, v in spec.options.items()}
    for key, value in given.items():
        if key not in defaults:
            raise OptionError(f"optimizer '{spec.name}' has no option '{key}'{nearest(key, list(defaults))}")
        wanted = bool if isinstance(defaults[key], bool) else (int, float)
        if not isinstance(value, wanted) or isinstance(value, bool) is not isinstance(defaults[key], bool) or value < 0:
            kind = "true or false" if wanted is bool else "a number, zero at least"
            raise OptionError(f"optimizer '{spec.name}': option '{key}' is {kind}, not {value!r}")
    rates = {} if rate is None else {"lr": rate}
    return Spec(spec.name, {**defaults, **rates, **given})
