"""Typed options of passes: declaration, validation, and their text form in a pipeline."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ...ir.core.errors import OptionError, nearest
from ...ir.core.option_text import Raw

REQUIRED: Any = dataclasses.MISSING

_BARE = re.compile(r"[^\s,={}\[\]\"]+")
"""A word that needs no quotes in a pipeline."""


def option(
    default: Any = REQUIRED,
    *,
    help: str,
    choices: Sequence[Any] = (),
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """Declares an option of a pass, ``steps: int = option(4, help="…", minimum=1)``; without a default it is required.

    ``choices`` and the bounds (inclusive) hold for each element of a list.
    """
    notes = {"help": help, "choices": tuple(choices), "minimum": minimum, "maximum": maximum}
    if default is REQUIRED:
        return dataclasses.field(metadata=notes)
    return dataclasses.field(default=default, metadata=notes)


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option. ``element`` is bool, int, float or str; ``default`` may be :data:`REQUIRED`."""

    name: str
    element: type
    is_list: bool
    is_optional: bool
    default: Any
    help: str = ""
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    @property
    def type_name(self) -> str:
        name = f"list of {self.element.__name__}" if self.is_list else self.element.__name__
        return f"{name} or none" if self.is_optional else name

    def describe(self) -> str:
        """``steps=4 (int, at least 1): …`` for listings."""
        limits = [self.type_name]
        if self.choices:
            limits = ["|".join(print_value(c) for c in self.choices)]
        if self.minimum is not None:
            limits.append(f"at least {self.minimum:g}")
        if self.maximum is not None:
            limits.append(f"at most {self.maximum:g}")
        value = "…" if self.default is REQUIRED else print_value(self.default)
        return f"{self.name}={value} ({', '.join(limits)})" + (f": {self.help}" if self.help else "")

    def check(self, value: Any) -> Any:
        """The value in its declared type, or OptionError. An int becomes a float, a list a tuple, one value a list."""
        if value is None and self.is_optional:
            return None
        if not self.is_list:
            return self._check_element(value)
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            value = [value]
        return tuple(self._check_element(v) for v in value)

    def _check_element(self, value: Any) -> Any:
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            value = value.item()  # a numpy scalar
        if self.element is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not self._has_type(value):
            raise OptionError(f"option '{self.name}' must be of type {self.type_name}, not {print_value(value)}")
        if self.choices and value not in self.choices:
            known = [print_value(c) for c in self.choices]
            raise OptionError(f"option '{self.name}' cannot be {print_value(value)}{nearest(str(value), known)}")
        if self.minimum is not None and not value >= self.minimum:
            raise OptionError(f"option '{self.name}' must be at least {self.minimum:g}, not {print_value(value)}")
        if self.maximum is not None and not value <= self.maximum:
            raise OptionError(f"option '{self.name}' must be at most {self.maximum:g}, not {print_value(value)}")
        return value

    def _has_type(self, value: Any) -> bool:
        return type(value) is self.element  # a bool is no int here

    def parse(self, raw: Raw) -> Any:
        """The value that a pipeline's text means, checked."""
        if raw.elements is not None:
            if not self.is_list:
                raise OptionError(f"option '{self.name}' must be of type {self.type_name}, not a list")
            return self.check([self._parse_element(e) for e in raw.elements])
        if self.is_optional and raw.text == "none" and not raw.quoted:
            return None
        return self.check(self._parse_element(raw))

    def _parse_element(self, raw: Raw) -> Any:
        if raw.elements is not None:
            raise OptionError(f"option '{self.name}' must be of type {self.type_name}, not nested lists")
        if self.element is str:
            return raw.text
        if self.element is bool and raw.text in ("true", "false"):
            return raw.text == "true"
        if self.element in (int, float) and not raw.quoted:
            try:
                return self.element(raw.text)
            except ValueError:
                pass
        hint = " (true or false)" if self.element is bool else ""
        raise OptionError(f"option '{self.name}' must be of type {self.type_name}{hint}, not '{raw.text}'")


def print_value(value: Any) -> str:
    """The text of a value in a pipeline; parses back to the same value."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(print_value, value))}]"
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and value != "none"
        return value if bare else json.dumps(value, ensure_ascii=False)
    return repr(value)


_DECLARED: dict[type, dict[str, Option]] = {}


def declared_options(cls: type) -> dict[str, Option]:
    """The options of a pass class by name, in order of declaration."""
    if cls not in _DECLARED:
        hints = get_type_hints(cls)
        fields = dataclasses.fields(cls)
        _DECLARED[cls] = {f.name: _declared(cls, f, hints[f.name]) for f in fields if f.init}
    return _DECLARED[cls]


def _declared(cls: type, field: dataclasses.Field[Any], hint: Any) -> Option:
    optional = False
    if get_origin(hint) in (Union, UnionType):
        members = [a for a in get_args(hint) if a is not NoneType]
        optional = len(members) < len(get_args(hint))
        hint = members[0] if len(members) == 1 else hint
    is_list = get_origin(hint) in (list, tuple)
    element = get_args(hint)[0] if is_list else hint
    if element not in (bool, int, float, str):
        raise TypeError(f"{cls.__name__}.{field.name}: an option is a bool, int, float, str, or a tuple of one of them")
    return Option(field.name, element, is_list, optional, field.default, **field.metadata)
