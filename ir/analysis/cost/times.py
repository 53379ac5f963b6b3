"""How long nodes take on CPU, for comparing plans: not for predicting seconds of another machine."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.graph import Node
from ...core.primitives import CPU, Family, named
from ...core.program import Program
from .flops import estimated_flops

PICOSECONDS = {
    "AdamWeightDecay": 1300, "BatchNorm": 2600, "BatchNormGrad": 2900, "BiasAddGrad": 2500, "Cos": 4500, "Equal": 3800,
    "Erf": 2600, "Floor": 1200, "GeLU": 10000, "GeLUGrad": 10000, "LayerNorm": 2800, "LayerNormGrad": 13000,
    "LogSoftmax": 1000, "MaxPool": 3200, "MaxPoolGrad": 14000, "Pow": 13000, "ReduceMax": 3500, "Rsqrt": 1100,
    "Sin": 4500, "Softplus": 1200, "Transpose": 1100,
}  # fmt: skip
"""An operation (:mod:`.flops`) of the primitives that are more than twice as slow as others, by ``python -m
benchmarks.kernel_time``, MindSpore 2.10, 2026-11-23, on 2 cores of an AMD EPYC: in steps of a GPT, a ViT, an MLP and
resnet18, the least of several, or alone where none of them has it. GeLU took 6000 in the MLP and 13000 in the GPT."""
_PRODUCT, _CONVOLUTION, _FILTER_GRADIENT, _OTHER = 6, 24, 67, 350
"""An operation of any other primitive, and on other devices than CPU: it computes, or it moves memory. Products of
matrices took 4 to 10, most elementwise primitives 150 to 700."""
_PRODUCTS = dict.fromkeys(named(Family.MATMUL, Family.AFFINE, Family.RECURRENT), _PRODUCT)
_PRODUCTS |= dict.fromkeys(named(Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION), _CONVOLUTION)
_PRODUCTS |= dict.fromkeys(named(Family.FILTER_GRADIENT), _FILTER_GRADIENT)


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
    default = _PRODUCTS.get(name, _OTHER)
    if name == "Transpose" and _keeps_rows(node):
        return default
    return PICOSECONDS.get(name, default) if target == CPU else default


def _keeps_rows(node: Node) -> bool:
    """Whether the last axis stays last: then memory is moved row by row."""
    axes = node.operand(1).literal if node.num_operands > 1 else None
    return isinstance(axes, tuple) and bool(axes) and axes[-1] in (-1, len(axes) - 1)
