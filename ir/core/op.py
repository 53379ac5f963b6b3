"""Primitives with their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from .attributes import Attribute, bits

NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})

TOKENS_ALONE = frozenset({"UpdateState", "Depend", "Load", "Partial"})
"""Primitives that take or make tokens and do nothing themselves."""


class Op:
    """A primitive with its attributes: immutable, interned, shared by all nodes that apply it.

    ``kind`` is MindSpore's primitive type: 1 a class whose arguments are attributes, 2 a function whose
    arguments are all operands, 0 not recorded. ``instance`` is the name that the exporter recorded.
    """

    __slots__ = ("__weakref__", "acts", "attributes", "deals_in_tokens", "instance", "key", "kind", "name")
    _interned: ClassVar[WeakValueDictionary[Any, Op]] = WeakValueDictionary()

    name: str
    attributes: Mapping[str, Attribute]
    instance: str
    kind: int
    key: tuple[Any, ...]
    acts: bool
    """Whether its attributes say that it acts on memory or the world; asked of every node, so it is looked up once."""
    deals_in_tokens: bool
    """Whether it is one of :data:`TOKENS_ALONE`."""

    def __new__(
        cls, name: str, attributes: Mapping[str, Attribute] = NO_ATTRIBUTES, instance: str = "", kind: int = 0
    ) -> Op:
        # The order of attributes is kept (files record it) but is no part of what the primitive computes.
        ordered = tuple((k, bits(v)) for k, v in attributes.items())
        key = (name, ordered, instance, kind)
        op = cls._interned.get(key)
        if op is None:
            op = object.__new__(cls)
            op.name = name
            op.attributes = MappingProxyType(dict(attributes)) if attributes else NO_ATTRIBUTES
            op.instance = instance
            op.kind = kind
            op.key = (name, frozenset(ordered))
            op.acts = bool(op.attributes.get("side_effect_mem") or op.attributes.get("side_effect_io"))
            op.deals_in_tokens = name in TOKENS_ALONE
            cls._interned[key] = op
        return op

    def __repr__(self) -> str:
        return f"Op({self.name})"


CALL = Op("call")
"""Calls operand 0, a function or a closure, with the remaining operands."""
MAKE_TUPLE = frozenset({"MakeTuple", "MakeList", "make_list"})
"""The primitives that make a tuple, or a list, of their operands."""
RETURN = Op("Return")
