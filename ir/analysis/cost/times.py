"""How long nodes take on CPU, for comparing plans: not for predicting seconds of another machine."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.graph import Node
from ...core.primitives import CPU, Family, named
from ...core.program import Program
from .flops import estimated_flops

PICOSECONDS = {
    "BatchNorm": 3600, "BiasAddGrad": 16000, "Cos": 18000, "Erf": 6100, "GeLU": 31000, "GeLUGrad": 65000,
    "LayerNorm": 3900, "LogSoftmax": 2600, "MaskedFill": 3600, "MaxPool": 22000, "Pow": 55000, "Rsqrt": 5000,
    "Sin": 19000, "Softplus": 4000, "SoftmaxBackward": 6000, "Transpose": 8200,
}  # fmt: skip
"""An operation (:mod:`.flops`) of the primitives that are more than twice as slow as others, by ``python -m
benchmarks.kernel_time``, MindSpore 2.10, 2026-11-23, on 2 cores of an AMD EPYC that had other work too."""
_PRODUCT, _OTHER = 20, 1000
"""An operation of any other primitive, and on other devices than CPU: it computes, or it moves memory. Products and
convolutions took 15 to 28, most elementwise primitives 300 to 2000."""
_PRODUCTS = named(
    Family.MATMUL, Family.AFFINE, Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION, Family.FILTER_GRADIENT,
    Family.RECURRENT,
)  # fmt: skip


def picoseconds(nodes: Iterable[Node], target: str = CPU) -> int:
    """The sum over nodes, one after another."""
    return sum(estimated_flops((node,)) * _for_one(node, target) for node in nodes)


def of_cycle(program: Program) -> int:
    """Picoseconds of the graphs of a cycle, each as often as it runs."""
    return sum(
        entry.repeat * picoseconds(program.graphs[entry.graph].all_nodes(), program.target)
        for entry in program.schedule.cycle
    )


def _for_one(node: Node, target: str) -> int:
    name = node.op.name
    default = _PRODUCT if name in _PRODUCTS else _OTHER
    if name == "Transpose" and _keeps_rows(node):
        return default
    return PICOSECONDS.get(name, default) if target == CPU else default


def _keeps_rows(node: Node) -> bool:
    """Whether the last axis stays last: then memory is moved row by row."""
    axes = node.operand(1).literal if node.num_operands > 1 else None
    return isinstance(axes, tuple) and bool(axes) and axes[-1] in (-1, len(axes) - 1)
