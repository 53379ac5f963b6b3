"""The facts of a primitive: one struct, of which the families in this folder fill one for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from ..attributes import Attribute
from ..op import NO_ATTRIBUTES

CPU, GPU, ASCEND = "cpu", "gpu", "ascend"
EVERYWHERE = frozenset({CPU, GPU, ASCEND})

Attributes = Mapping[str, Attribute]
MEM: Attributes = {"side_effect_mem": True}
IO: Attributes = {"side_effect_io": True}
PROPAGATE: Attributes = {"side_effect_propagate": 1}


class Family(Enum):
    """Kinds of primitives by what they compute, as far as two places ask for it. ``x`` is the first operand."""

    OTHER = auto()
    # Structure: no kernel computes these
    ORDER = auto()
    """Says when something happens: Load reads a state, Depend waits, UpdateState makes a token."""
    TUPLE = auto()  # Makes a tuple, or takes an element of one
    CLOSURE = auto()  # Binds arguments to a function, or chooses one of two
    # The elements of x
    COPY = auto()  # x as it is
    CAST = auto()  # x in another element type
    RESHAPE = auto()  # The elements of x in their order, in another shape
    TRANSPOSE = auto()  # The elements of x, its axes in another order
    SLICE = auto()  # Some elements of x, or all in several parts, in their order
    REPEAT = auto()  # The elements of x, several times
    JOIN = auto()  # Tensors side by side
    LOOKUP = auto()  # Rows of a table, named by indices
    # Arithmetic, with broadcasting
    SUM = auto()
    DIFFERENCE = auto()
    PRODUCT = auto()
    QUOTIENT = auto()
    CLAMP = auto()  # x, held between bounds
    CHOICE = auto()  # Each element is that of one operand or of another
    # Products of matrices and convolutions: ``factors`` says which operands are data and weight
    MATMUL = auto()
    AFFINE = auto()  # A matrix product plus something
    CONVOLUTION = auto()
    TRANSPOSED_CONVOLUTION = auto()
    """The gradient of a convolution by its data; in a forward part, a transposed convolution."""
    FILTER_GRADIENT = auto()  # The gradient of a convolution by its weight
    RECURRENT = auto()  # A layer of matrix products, which takes its weights joined
    # Layers
    BATCH_NORM = auto()  # operands: x, gamma, beta, moving mean, moving variance; result: (normalised x, …)
    BATCH_NORM_GRADIENT = auto()  # Operands: dy, x, gamma, ...; the result is (dx, dgamma, dbeta)
    DROPOUT = auto()  # The result is what is left of x, alone or with a mask
    # Reductions: operands (x, axes, keep the axes)
    TOTAL = auto()
    MEAN = auto()
    EXTREME = auto()  # The largest or smallest element, or its place
    MULTIPLIED = auto()  # The product of the elements
    LOGICAL = auto()  # Whether all, or any, are true
    NORM = auto()  # A length: the root of a sum of squares, or the like
    # Tests for infinities and NaN
    FINITE = auto()  # True where x is finite
    OVERFLOWED = auto()  # True where x is not finite, or is infinite, or is NaN
    STATUS = auto()  # A number: not zero where x is not finite
    DEVICE_STATUS = auto()  # The device's own flag: not zero after an overflow
    DEVICE_FLAG = auto()  # Clears that flag, or makes memory to read it into
    # Between ranks, and out of the program
    COLLECTIVE = auto()
    CODE = auto()  # runs code that its attributes or operands name: neither run nor written, files are not trusted


@dataclass(frozen=True, slots=True)
class Facts:
    """Operands are told by position.

    ``writes``: written in place. ``any_tensor``: what is written need not be state (``x += y``).
    ``pure``: the primitive that computes what this one writes, from the same operands.
    ``view``: the result may be the memory of an operand.
    ``gradient``, ``rate``, ``decay``: of optimizers, which operand is the gradient, which the learning rate as it is,
    and which the coefficient of the weight decay that they do themselves.
    ``rows``: of primitives that are told by indices where rows go, which operand holds the rows.
    ``factors``: of products, which operands are data and weight.
    ``statistics``: what a normalisation learns in training; ``training``: the operand that says whether it does.
    ``keep``: of dropouts, which operand is the share that is kept (``keep_prob``, where it is no attribute).
    ``seeds``: the two seeds, where they are operands.
    ``random``: never merged or duplicated. ``elementwise``: each element of the result is made of those at its place.
    ``samples``: how it treats the samples of a batch, in the words of :mod:`.samples`.
    ``linear``: the operands that it is linear in, as :mod:`.linear` lists them.
    ``kind``: MindSpore's prim type (1 class, 2 function), and ``attributes``: those that every node has; both for
    nodes that a pass makes. Which targets have kernels for it: ``ir/core/kernels/``.
    """

    family: Family = Family.OTHER
    writes: tuple[int, ...] = ()
    any_tensor: bool = False
    pure: str = ""
    view: bool = False
    gradient: int | None = None
    rate: int | None = None
    decay: int | None = None
    rows: int | None = None
    factors: tuple[int, int] = (0, 1)
    statistics: tuple[int, ...] = ()
    training: int | None = None
    keep: int | None = None
    seeds: tuple[int, ...] = ()
    random: bool = False
    elementwise: bool = False
    samples: str = ""
    linear: tuple[tuple[int, ...], ...] = ()
    kind: int = 2
    attributes: Attributes = field(default_factory=lambda: NO_ATTRIBUTES)


Table = dict[str, Facts]


def each(names: str, facts: Facts) -> Table:
    """The same facts for each of the names, which stand apart by spaces."""
    return dict.fromkeys(names.split(), facts)


def family(which: Family, names: str, *, kind: int = 2, elementwise: bool = False) -> Table:
    """Primitives of which nothing but the family is to be said."""
    return each(names, Facts(which, kind=kind, elementwise=elementwise))
