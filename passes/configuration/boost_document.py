"""The configuration of ``mindspore.boost``: levels, and the document of ``AutoBoost``, as a pipeline."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.core.errors import OptionError, nearest
from ..framework.options import print_value
from .documents import check_document, read_document

LEVELS: Mapping[str, tuple[str, ...]] = {
    "O0": (),
    "O1": ("less_bn", "grad_freeze"),
    "O2": ("less_bn", "grad_freeze", "adasum"),
}
"""The switches that a level turns on."""

SWITCHES = ("less_bn", "grad_freeze", "adasum", "grad_accumulation", "dim_reduce", "loss_scale_group")

EXCLUDED = (
    # group-loss-scale skips what overflows by a check that a line search does itself.
    ("loss_scale_group", ("dim_reduce",), "each judges overflows by itself"),
    ("dim_reduce", ("less_bn", "grad_freeze", "adasum"), "every weight has its place in the basis"),
)
"""The passes that a switch leaves out, in this order, and why."""

SAME_NAME = ("rho", "gamma", "alpha", "sigma", "n_components")
"""Keys of dim_reduce that are options of the pass."""


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
    grad_accumulation=_section(grad_accumulation_step=_key("integer", 1)),
    dim_reduce=_section(
        rho=_key("number", 0.55, minimum=0.01, maximum=0.99),
        gamma=_key("number", 0.9, minimum=0, maximum=1),
        alpha=_key("number", 0.001, minimum=0),
        sigma=_key("number", 0.4, minimum=0, maximum=1),
        n_components=_key("integer", 32, minimum=1),
        pca_mat_path=_key(["string", "null"], None),
        weight_load_dir=_key(["string", "null"], None),
        timeout=_key("integer", 1800, minimum=0),
    ),
    # Not of AutoBoost: what GroupLossScaleManager is made with, groups by the names of their weights.
    loss_scale_group=_section(
        init_loss_scale=_key(["number", "array"], 4096, minimum=0, items={"type": "number", "minimum": 0}),
        loss_scale_groups=_key(
            ["integer", "array"], 4, minimum=2, items={"type": ["string", "array"], "items": {"type": "string"}}
        ),
    ),
)
"""JSON Schema of the document, with upstream's defaults. Upstream's section loss_scale_group has no keys."""


@dataclass(frozen=True, slots=True)
class Translation:
    """``pipeline`` is what a configuration asks for, ``notes`` say where that differs from ``mindspore.boost``."""

    pipeline: str
    notes: tuple[str, ...]


class BoostNote(UserWarning):
    """Warns of what a user of ``mindspore.boost`` would not expect of a configuration."""


def from_boost_config(config: Mapping[str, Any] | str | os.PathLike[str] | None = None, level: str = "O0") -> str:
    """Returns the pipeline text for a configuration of ``mindspore.boost``: the dictionary of ``AutoBoost``, or its
    JSON file; ``None`` and ``""`` are the empty one.

    ``level`` (O0, O1, O2) decides in mode ``auto``, and in mode ``manual`` for switches that are not given.
    :func:`compile` takes the text, which is empty where nothing is switched on. Its passes are optional: one that
    matches nothing in a network is a NoMatchWarning. A BoostNote warning says where the result differs from
    ``mindspore.boost``. OptionError, which is a ValueError too, for unknown keys, wrong values, and missing ones.
    """
    if isinstance(config, (str, os.PathLike)) and config != "":
        where, config = os.fspath(config), read_document(config)
    else:
        where = "boost configuration"
    translation = translate({} if config is None or isinstance(config, str) else config, level, where)
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
    for switch, excluded, why in EXCLUDED:
        left_out = [name for name in excluded if name in on]
        if switch in on and left_out:
            notes.append(f"{switch} leaves {', '.join(left_out)} out, as in mindspore.boost: {why}")
            on = [name for name in on if name not in left_out]
    passes = {switch: list(_passes(switch, document, where)) for switch in on}
    others = [name for name in on if name != "grad_freeze" and passes[name]]
    if "grad_freeze" in on and others:
        counted = "; total_steps counts optimizer steps" if "grad_accumulation" in others else ""
        notes.append(f"grad_freeze works with {', '.join(others)}, which mindspore.boost says it excludes{counted}")
    if "grad_accumulation" in on and not passes["grad_accumulation"]:
        steps = _values(document, "grad_accumulation")["grad_accumulation_step"]
        notes.append(f"grad_accumulation is on, but accumulates nothing: grad_accumulation_step is {steps}")
    return Translation(",".join(text for switch in on for text in passes[switch]), tuple(notes))


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


def _passes(switch: str, document: Mapping[str, Any], where: str) -> Iterable[str]:
    """The passes behind a switch that is on."""
    values, common = _values(document, switch), _values(document, "common")
    if switch == "less_bn":
        yield _text("less-bn", select="pattern-or-inner")
        if values["fn_flag"]:
            yield _text("normalised-head", layers="every-cell", bias="drop")
        if values["gc_flag"]:
            yield _text("gradient-centralization")
        # Split points fuse the communication between ranks. Unasked, upstream splits in the middle; we leave it be.
        points = common["gradient_split_groups"]
        if isinstance(points, int):
            points = [points]
        if points:
            yield _text("parameter-groups", split_points=points)
    elif switch == "grad_freeze":
        yield _text(
            "gradient-freeze",
            groups=values["param_groups"],
            type=("continuous", "interval")[values["freeze_type"]],
            probability=values["freeze_p"],
            total_steps=values["total_steps"],
            after="repeat",
        )
    elif switch == "adasum":
        yield _text("adasum", devices_per_group=common["device_number"])
    elif switch == "grad_accumulation":
        if values["grad_accumulation_step"] > 1:
            yield _text("gradient-accumulation", steps=values["grad_accumulation_step"], reduction="mean")
    elif switch == "dim_reduce":
        yield _text("dim-reduce", basis=_basis(values, where), **{name: values[name] for name in SAME_NAME})
    else:
        init, groups = values["init_loss_scale"], values["loss_scale_groups"]
        scales = [float(scale) for scale in (init if isinstance(init, (list, tuple)) else [init])]
        if isinstance(groups, int):
            yield _text("group-loss-scale", groups=groups, init=scales)
        else:
            match = [group if isinstance(group, str) else "|".join(group) for group in groups]
            yield _text("group-loss-scale", match=match, init=scales)


def _text(name: str, **options: Any) -> str:
    """An optional pass: a configuration serves many networks, and upstream says nothing where it finds nothing."""
    shown = ",".join(f"{key}={print_value(value)}" for key, value in options.items())
    return f"{name}?{{{shown}}}" if shown else f"{name}?"


def _basis(values: Mapping[str, Any], where: str) -> str:
    """The file, or else the directory, that dim-reduce reads its basis from."""
    found = values["pca_mat_path"] or values["weight_load_dir"]
    if not found:
        raise OptionError(
            f"{where}: dim_reduce needs a basis: give dim_reduce.pca_mat_path, a file, or dim_reduce.weight_load_dir, "
            'a directory of checkpoints; to do without, say {"boost": {"mode": "manual", "dim_reduce": false, …}}'
        )
    return str(found)


def _values(document: Mapping[str, Any], section: str) -> dict[str, Any]:
    """A section with its defaults."""
    keys = SCHEMA["properties"][section]["properties"]
    return {name: key["default"] for name, key in keys.items()} | dict(document.get(section, {}))
