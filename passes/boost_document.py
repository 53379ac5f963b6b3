"""The configuration of ``mindspore.boost``: levels, and the document of ``AutoBoost``, as a pipeline."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.errors import OptionError, nearest
from .documents import check_document, read_document
from .options import declared_options, print_value
from .registry import REGISTRY, load_all

LEVELS: Mapping[str, tuple[str, ...]] = {
    "O0": (),
    "O1": ("less_bn", "grad_freeze"),
    "O2": ("less_bn", "grad_freeze", "adasum"),
}
"""The switches that a level turns on."""

SWITCHES = ("less_bn", "grad_freeze", "adasum", "grad_accumulation", "dim_reduce", "loss_scale_group")


def _section(**keys: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": keys}


def _key(kind: str | list[str], default: Any, **limits: Any) -> dict[str, Any]:
    return {"type": kind, "default": default, **limits}


def _switch() -> dict[str, Any]:
    return _key("boolean", None)  # the mode and the level decide


SCHEMA = _section(
    boost=_section(
        mode=_key("string", "auto", enum=["auto", "manual", "enable_all", "disable_all"]),
        **{name: _switch() for name in SWITCHES},
    ),
    common=_section(
        # Documented as [50, 100] upstream; where nothing is given, it splits in the middle.
        gradient_split_groups=_key(["integer", "array"], [], minimum=0, items={"type": "integer", "minimum": 0}),
        device_number=_key("integer", 8, minimum=1),
    ),
    less_bn=_section(fn_flag=_key("boolean", True), gc_flag=_key("boolean", True)),
    grad_freeze=_section(
        param_groups=_key("integer", 10, minimum=2),
        freeze_type=_key("integer", 1, enum=[0, 1]),
        freeze_p=_key("number", 0.7, minimum=0, maximum=0.99),
        total_steps=_key("integer", 65536, minimum=1),
    ),
    adasum=_section(),
    grad_accumulation=_section(grad_accumulation_step=_key("integer", 1, minimum=1)),
    dim_reduce=_section(
        rho=_key("number", 0.55),
        gamma=_key("number", 0.9),
        alpha=_key("number", 0.001),
        sigma=_key("number", 0.4),
        n_components=_key("integer", 32, minimum=1),
        pca_mat_path=_key(["string", "null"], None),
        weight_load_dir=_key(["string", "null"], None),
        timeout=_key("integer", 1800, minimum=0),
    ),
    loss_scale_group=_section(),
)
"""JSON Schema of the document, with upstream's defaults."""


@dataclass(frozen=True, slots=True)
class Translation:
    """``pipeline`` is what a configuration asks for, ``notes`` say where that differs from ``mindspore.boost``."""

    pipeline: str
    notes: tuple[str, ...]


class BoostNote(UserWarning):
    """What a user of ``mindspore.boost`` would not expect of a configuration."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """``section.key`` of the document, being ``value``, asks for the pass ``name``; with ``without`` it does not."""

    section: str
    key: str
    value: Any
    without: Any
    name: str
    options: Mapping[str, Any]

    def __str__(self) -> str:
        options = ",".join(f"{name}={print_value(value)}" for name, value in self.options.items())
        return f"{self.name}{{{options}}}" if options else self.name


def from_boost_config(config: Mapping[str, Any] | str | os.PathLike[str] | None = None, level: str = "O0") -> str:
    """The pipeline text for a configuration of ``mindspore.boost``: the dictionary of ``AutoBoost``, or its JSON file.

    ``level`` (O0, O1, O2) decides in mode ``auto``, and in mode ``manual`` for switches that are not given. The text is
    what :func:`compile` takes, empty where nothing is switched on. What a user of ``mindspore.boost`` may not expect is
    a BoostNote warning. OptionError for unknown keys, wrong values, and for what this version has no pass for.
    """
    if isinstance(config, (str, os.PathLike)):
        where, config = os.fspath(config), read_document(config)
    else:
        where = "boost configuration"
    translation = translate({} if config is None else config, level, where)
    for note in translation.notes:
        warnings.warn(f"{where}: {note}", BoostNote, stacklevel=2)
    return translation.pipeline


def translate(document: Mapping[str, Any], level: str, where: str) -> Translation:
    """As :func:`from_boost_config`; ``where`` begins the errors."""
    if level not in LEVELS:
        raise OptionError(f"unknown boost level '{level}'{nearest(str(level), list(LEVELS))}")
    if document != {}:
        check_document(document, SCHEMA, where)
    mode = document.get("boost", {}).get("mode", "auto")
    on = _switched_on(document, mode, level)
    notes = _ignored(document, mode, level, on)
    if "dim_reduce" in on and not any(_lack(ask) for ask in _asks("dim_reduce", document)):
        # Every weight has its place in the basis, so none may go, be frozen, or move by itself.
        excluded = [name for name in ("less_bn", "grad_freeze", "adasum") if name in on]
        if excluded:
            notes.append(f"dim_reduce leaves {', '.join(excluded)} out, as in mindspore.boost")
        on = [name for name in on if name not in excluded]
    asks = {switch: list(_asks(switch, document)) for switch in on}
    missing = [ask for switch in on for ask in asks[switch] if _lack(ask)]
    if missing:
        raise OptionError(_refusal(document, mode, on, missing, where))
    others = [name for name in on if name != "grad_freeze" and asks[name]]
    if "grad_freeze" in on and others:
        counted = "; total_steps counts optimizer steps" if "grad_accumulation" in others else ""
        notes.append(f"grad_freeze works with {', '.join(others)}, which mindspore.boost says it excludes{counted}")
    if "grad_accumulation" in on and not asks["grad_accumulation"]:
        notes.append("grad_accumulation is on, but accumulates nothing: grad_accumulation_step is 1")
    return Translation(",".join(str(ask) for switch in on for ask in asks[switch]), tuple(notes))


def _switched_on(document: Mapping[str, Any], mode: str, level: str) -> list[str]:
    if mode in ("enable_all", "disable_all"):
        return list(SWITCHES) if mode == "enable_all" else []
    given = document.get("boost", {}) if mode == "manual" else {}
    return [name for name in SWITCHES if given.get(name, name in LEVELS[level])]


def _ignored(document: Mapping[str, Any], mode: str, level: str, on: Sequence[str]) -> list[str]:
    """A note on the switches that the mode overrules."""
    given = document.get("boost", {})
    ignored = [f"boost.{n} = {print_value(given[n])}" for n in SWITCHES if n in given and given[n] != (n in on)]
    if not ignored:
        return []
    decides = f"the level ({level})" if mode == "auto" else "the mode"
    return [f"boost.mode is '{mode}': {decides} decides, and {', '.join(ignored)} is not read (mode 'manual' reads it)"]


def _refusal(document: Mapping[str, Any], mode: str, on: Sequence[str], missing: Sequence[_Ask], where: str) -> str:
    """What asks for passes that do not exist, and the document that does not."""
    change: dict[str, dict[str, Any]] = {}
    if mode != "manual" and any(ask.section == "boost" for ask in missing):
        given = document.get("boost", {})
        change["boost"] = {"mode": "manual", **{n: n in on for n in SWITCHES if n in on or n in given}}
    lines = []
    for ask in missing:
        change.setdefault(ask.section, {})[ask.key] = ask.without
        default = "" if ask.section == "boost" or ask.key in document.get(ask.section, {}) else ", the default,"
        lines.append(f"{ask.section}.{ask.key} = {print_value(ask.value)}{default} asks for {_lack(ask)}")
    return "\n  ".join(
        (
            f"{where}: this version lacks what is asked for:",
            *lines,
            f"To do without, say in the configuration document: {json.dumps(change)}",
        )
    )


def _asks(switch: str, document: Mapping[str, Any]) -> Iterable[_Ask]:
    """The passes behind a switch that is on."""
    values, common = _values(document, switch), _values(document, "common")

    def by_switch(name: str, **options: Any) -> _Ask:
        return _Ask("boost", switch, True, False, name, options)

    if switch == "less_bn":
        yield by_switch("less-bn")
        if values["fn_flag"]:
            yield _Ask(switch, "fn_flag", True, False, "normalised-head", {})
        if values["gc_flag"]:
            yield _Ask(switch, "gc_flag", True, False, "tag-gradient-centralization", {})
            yield _Ask(switch, "gc_flag", True, False, "lower-gradient-centralization", {})
        # Split points fuse the communication between ranks. Unasked, upstream splits in the middle; we leave it be.
        key, points = "gradient_split_groups", common["gradient_split_groups"]
        if isinstance(points, int):
            points = [points]
        if points:
            yield _Ask("common", key, points, [], "parameter-groups", {"split_points": points})
    elif switch == "grad_freeze":
        yield by_switch(
            "gradient-freeze",
            groups=values["param_groups"],
            type=("continuous", "interval")[values["freeze_type"]],
            probability=values["freeze_p"],
            total_steps=values["total_steps"],
        )
    elif switch == "adasum":
        yield by_switch("adasum", device_number=common["device_number"])
    elif switch == "grad_accumulation":
        if values["grad_accumulation_step"] > 1:
            yield by_switch("gradient-accumulation", steps=values["grad_accumulation_step"])
    elif switch == "dim_reduce":
        yield by_switch("dim-reduce", **values, device_number=common["device_number"])
    else:
        yield by_switch("group-loss-scale")


def _values(document: Mapping[str, Any], section: str) -> dict[str, Any]:
    """A section with its defaults."""
    keys = SCHEMA["properties"][section]["properties"]
    return {name: key["default"] for name, key in keys.items()} | dict(document.get(section, {}))


def _lack(ask: _Ask) -> str | None:
    """What this version lacks for it: the pass, or an option."""
    if ask.name not in REGISTRY:
        load_all()
    if ask.name not in REGISTRY:
        return f"the pass '{ask.name}'"
    declared = declared_options(REGISTRY[ask.name])
    unknown = [name for name in ask.options if name not in declared]
    return f"the option '{unknown[0]}' of the pass '{ask.name}'" if unknown else None
