"""Primitives that hold a graph together: no kernel computes these."""

from __future__ import annotations

from .definition import PROPAGATE, Facts, Family, Table, each

TABLE: Table = {
    "Load": Facts(Family.ORDER, view=True, kind=1),
    "UpdateState": Facts(Family.ORDER, kind=1),
    "Depend": Facts(Family.ORDER, view=True, kind=1, attributes=PROPAGATE),
    **each("MakeTuple TupleGetItem", Facts(Family.TUPLE, view=True, kind=1)),
    **each("MakeList make_list list_getitem", Facts(Family.TUPLE, view=True)),
    "Partial": Facts(Family.CLOSURE, view=True, kind=1, attributes=PROPAGATE),
    "Switch": Facts(Family.CLOSURE, view=True, kind=1),
}
