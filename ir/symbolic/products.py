"""Products of matrices as terms: a product says by itself which operands it reads transposed, and takes them as they
lie. So MatMulExt(x, Transpose(y)) and BatchMatMul(x, y, false, true) are one term, and so is what they are transposed:
Transpose(x·y) = Transpose(y)·Transpose(x).
"""

from __future__ import annotations

from ..core.graph import Node
from ..core.matrices import reads_turned, transposed
from .terms import Terms

PRODUCT = "product of matrices"
"""What a head names in the place of a primitive."""


def product_of(node: Node, arguments: tuple[int, ...], terms: Terms) -> int | None:
    """The term of a product of matrices in equal stacks, or of one transposed; None where a node is neither."""
    flags = reads_turned(node)
    if flags is not None:
        operands = [_as_it_lies(t, flag, terms) for t, flag in zip(arguments, flags, strict=False)]
        multiplies = node
    elif transposed(node) is not None and terms.heads[arguments[0]][:2] == ("op", PRODUCT):
        first, second, *told = terms.arguments[arguments[0]]
        operands = [(second, not terms.values[told[1]]), (first, not terms.values[told[0]])]
        multiplies = terms.nodes[arguments[0]] or node
    else:
        return None
    said, shape = terms.type(node.type)
    constants = (terms.constant(flag) for _, flag in operands)
    return terms.make(("op", PRODUCT, 0, said), (*(t for t, _ in operands), *constants), shape, multiplies)


def _as_it_lies(t: int, flag: bool, terms: Terms) -> tuple[int, bool]:
    """What a term is a transposition of, and whether it must be read transposed then."""
    while (node := terms.nodes[t]) is not None and terms.heads[t][0] == "op" and transposed(node) is not None:
        t, flag = terms.arguments[t][0], not flag
    return t, flag
