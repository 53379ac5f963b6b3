"""All passes by name. A pass of another distribution registers its class as an entry point in the group
``boost_compile.passes`` (looked up only for a name that is not known here), or calls :func:`register`."""

from __future__ import annotations

from typing import TypeVar

from ..ir.errors import OptionError, nearest
from .adasum import AdaSum
from .base import Pass
from .batch_size import BatchSize
from .clip_gradients import ClipGradients
from .common_subexpression_elimination import CommonSubexpressionElimination
from .data_parallel import DataParallel
from .dead_code_elimination import DeadCodeElimination
from .dim_reduce import DimReduce
from .effect_chain_minimization import EffectChainMinimization
from .gradient_accumulation import GradientAccumulation
from .gradient_freeze import GradientFreeze
from .group_loss_scale import GroupLossScale
from .legalize import Legalize
from .less_bn import LessBN
from .loss_scale import LossScale
from .lower_gradient_centralization import LowerGradientCentralization
from .normalised_head import NormalisedHead
from .overflow_check import OverflowCheck
from .parameter_groups import ParameterGroups
from .patch_convolution import PatchConvolution
from .tag_gradient_centralization import TagGradientCentralization

REGISTRY: dict[str, type[Pass]] = {
    cls.name: cls
    for cls in (
        AdaSum,
        BatchSize,
        ClipGradients,
        CommonSubexpressionElimination,
        DataParallel,
        DeadCodeElimination,
        DimReduce,
        EffectChainMinimization,
        GradientAccumulation,
        GradientFreeze,
        GroupLossScale,
        Legalize,
        LowerGradientCentralization,
        LessBN,
        LossScale,
        NormalisedHead,
        OverflowCheck,
        ParameterGroups,
        PatchConvolution,
        TagGradientCentralization,
    )
}

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
