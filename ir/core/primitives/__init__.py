"""One table of facts about primitives: what passes, analyses, the verifier and the emitter need to know of each.

A fact that two places need stands here, once; a rule that only one analysis needs stands in that analysis. Each file
holds a family; a primitive is added in one line of one of them.

A primitive that is not listed is judged by what the file says of it: an effect-token operand or a ``side_effect_*``
attribute makes it effectful (and a write to every state operand), else it counts as pure, as in MindSpore itself.
Operand positions: as MindSpore 2.10 exports them; prim types: such as it takes of passes.
``test_primitives_signatures.py`` holds the table against the signatures of MindSpore's classes,
``test_primitives_run.py`` against what its kernels do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from ..attributes import Attribute
from ..op import CALL, NO_ATTRIBUTES, Op
from . import arithmetic, chance, layers, linear, optimizers, outside, products, reductions, samples, shapes

from . import state, structure  # isort: skip
from .definition import ASCEND, CPU, EVERYWHERE, GPU, Facts, Family, Table

__all__ = [
    "ASCEND", "BINDING", "CPU", "EVERYWHERE", "GPU", "PASSING", "PRIMITIVES", "UNLISTED", "VIEWS", "Facts", "Family",
    "facts", "make_op", "named",
]  # fmt: skip

_FILES = (structure, state, optimizers, arithmetic, products, layers, shapes, reductions, chance, outside)
UNLISTED = Facts()
_TABLE: Table = {name: known for file in _FILES for name, known in file.TABLE.items()}
PRIMITIVES: Table = {
    name: replace(
        _TABLE.get(name, UNLISTED), samples=samples.samples_of(_TABLE, name), linear=linear.NAMED.get(name, ())
    )
    for name in {**_TABLE, **samples.NAMED, **linear.NAMED}
}


def facts(op: Op) -> Facts:
    return PRIMITIVES.get(op.name, UNLISTED)


def make_op(name: str, attributes: Mapping[str, Attribute] = NO_ATTRIBUTES) -> Op:
    """The primitive as a pass would insert it: prim type and standing attributes from the table."""
    return _plain_op(name) if not attributes else _make_op(name, attributes)


@cache
def _plain_op(name: str) -> Op:
    """Passes insert the same few primitives many thousand times."""
    return _make_op(name, NO_ATTRIBUTES)


def _make_op(name: str, attributes: Mapping[str, Attribute]) -> Op:
    if name == CALL.name:
        return Op(name, attributes)
    known = PRIMITIVES.get(name, UNLISTED)
    return Op(name, {**known.attributes, **attributes}, kind=known.kind)


def named(*families: Family, in_place: bool = False) -> frozenset[str]:
    """The primitives of these families; those that write in place too if ``in_place``."""
    return frozenset(n for n, f in PRIMITIVES.items() if f.family in families and (in_place or not f.writes))


PASSING = named(Family.TUPLE) | {"Depend"}
"""Views that touch no data: only those who use their result do."""
BINDING = named(Family.CLOSURE)
"""Primitives that bind or choose a closure: who calls it reads what they take."""
VIEWS = frozenset(name for name, known in PRIMITIVES.items() if known.view)
"""Primitives whose result is an operand, or part of it, seen in another way."""
