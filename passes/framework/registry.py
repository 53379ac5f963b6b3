"""All passes by name. A pass of another distribution registers its class as an entry point in the group
``boost_compile.passes`` (looked up only for a name that is not known here), or calls :func:`register`."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TypeVar

from ...ir.core.errors import OptionError, nearest
from .base import Pass

CLASSES = {
    "adasum": "AdaSum",
    "batch-size": "BatchSize",
    "clip-gradients": "ClipGradients",
    "common-subexpression-elimination": "CommonSubexpressionElimination",
    "data-parallel": "DataParallel",
    "dead-code-elimination": "DeadCodeElimination",
    "dim-reduce": "DimReduce",
    "effect-chain-minimization": "EffectChainMinimization",
    "freeze": "Freeze",
    "gradient-accumulation": "GradientAccumulation",
    "gradient-centralization": "GradientCentralization",
    "gradient-freeze": "GradientFreeze",
    "group-loss-scale": "GroupLossScale",
    "legalize": "Legalize",
    "less-bn": "LessBN",
    "lora": "LoRA",
    "loss-scale": "LossScale",
    "lower-gradient-centralization": "LowerGradientCentralization",
    "mixed-precision": "MixedPrecision",
    "monitor": "Monitor",
    "normalised-head": "NormalisedHead",
    "overflow-check": "OverflowCheck",
    "parameter-groups": "ParameterGroups",
    "patch-convolution": "PatchConvolution",
    "recompute": "Recompute",
    "replace-optimizer": "ReplaceOptimizer",
    "schedule": "RateSchedule",
    "shard-optimizer": "ShardOptimizer",
    "tag-gradient-centralization": "TagGradientCentralization",
    "weight-average": "WeightAverage",
}
"""The project's own passes: each has a module of its name."""
LEGALIZATION = "legalize"
"""The pass without which a program may not run on its target (:meth:`.Pass.needed_for`, :meth:`.Pass.check_target`)."""


class Registry(MutableMapping[str, type[Pass]]):
    """Pass classes by name; the project's own are imported one by one, when they are asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, type[Pass]] = {}

    def __getitem__(self, name: str) -> type[Pass]:
        if name not in self._loaded:
            cls = CLASSES[name]
            self._loaded[name] = getattr(import_module(f"...passes.{name.replace('-', '_')}", __package__), cls)
        return self._loaded[name]

    def __setitem__(self, name: str, cls: type[Pass]) -> None:
        self._loaded[name] = cls

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter({**CLASSES, **self._loaded})

    def __len__(self) -> int:
        return len({**CLASSES, **self._loaded})


REGISTRY: MutableMapping[str, type[Pass]] = Registry()

ENTRY_POINTS = "boost_compile.passes"
P = TypeVar("P", bound=type[Pass])


def register(cls: P) -> P:
    """Adds a pass class under its name; usable as a decorator. The name must be free."""
    known = REGISTRY.get(cls.name)
    if not cls.name or (known is not None and known is not cls):
        raise OptionError(f"cannot register {cls.__name__}: the name '{cls.name}' is {'taken' if known else 'empty'}")
    REGISTRY[cls.name] = cls
    return cls


def find(name: str) -> type[Pass]:
    """The pass class of that name. OptionError, naming the nearest one, if there is none."""
    if name not in REGISTRY:
        load_all()
    if name not in REGISTRY:
        raise OptionError(f"unknown pass '{name}'{nearest(name, list(REGISTRY))}")
    return REGISTRY[name]


def load_all() -> None:
    """Loads the passes of other distributions too."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name in REGISTRY:
            continue
        try:
            cls = entry.load()
        except Exception as error:  # the other distribution's fault, whatever it is
            raise OptionError(f"pass '{entry.name}' ({entry.value}) cannot be imported: {error}") from error
        if not (isinstance(cls, type) and issubclass(cls, Pass) and cls.name == entry.name):
            raise OptionError(f"entry point '{entry.name}' ({entry.value}) is no Pass class of that name")
        REGISTRY[entry.name] = cls
