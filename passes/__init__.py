"""Passes: rewrites of a program, and what runs them. Loaded on first use, so that importing this costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ir.analysis.training.stages import STAGES
    from ..ir.core.report import Miss, PassResult
    from .adasum import AdaSum
    from .batch_size import BatchSize
    from .clip_gradients import ClipGradients
    from .common_subexpression_elimination import CommonSubexpressionElimination
    from .data_parallel import DataParallel
    from .dead_code_elimination import DeadCodeElimination
    from .dim_reduce import DimReduce
    from .effect_chain_minimization import EffectChainMinimization
    from .framework.base import Pass
    from .framework.manager import InternalError, NoMatchWarning, compile_program
    from .framework.options import option
    from .framework.pipeline import parse_pipeline, print_pipeline
    from .framework.registry import REGISTRY, register
    from .freeze import Freeze
    from .gradient_accumulation import GradientAccumulation
    from .gradient_centralization import GradientCentralization
    from .gradient_freeze import GradientFreeze
    from .group_loss_scale import GroupLossScale
    from .legalize import Legalize
    from .less_bn import LessBN
    from .lora import LoRA
    from .loss_scale import LossScale
    from .lower_gradient_centralization import LowerGradientCentralization
    from .mixed_precision import MixedPrecision
    from .monitor import Monitor
    from .normalised_head import NormalisedHead
    from .overflow_check import OverflowCheck
    from .parameter_groups import ParameterGroups
    from .patch_convolution import PatchConvolution
    from .recompute import Recompute
    from .replace_optimizer import ReplaceOptimizer
    from .schedule import RateSchedule
    from .shard_optimizer import ShardOptimizer
    from .tag_gradient_centralization import TagGradientCentralization
    from .weight_average import WeightAverage

_HOMES = {
    "Miss": "..ir.core.report",
    "PassResult": "..ir.core.report",
    "STAGES": "..ir.analysis.training.stages",
    "Pass": ".framework.base",
    "InternalError": ".framework.manager",
    "NoMatchWarning": ".framework.manager",
    "compile_program": ".framework.manager",
    "option": ".framework.options",
    "parse_pipeline": ".framework.pipeline",
    "print_pipeline": ".framework.pipeline",
    "REGISTRY": ".framework.registry",
    "register": ".framework.registry",
}

__all__ = [
    "REGISTRY",
    "STAGES",
    "AdaSum",
    "BatchSize",
    "ClipGradients",
    "CommonSubexpressionElimination",
    "DataParallel",
    "DeadCodeElimination",
    "DimReduce",
    "EffectChainMinimization",
    "Freeze",
    "GradientAccumulation",
    "GradientCentralization",
    "GradientFreeze",
    "GroupLossScale",
    "InternalError",
    "Legalize",
    "LessBN",
    "LoRA",
    "LossScale",
    "LowerGradientCentralization",
    "Miss",
    "MixedPrecision",
    "Monitor",
    "NoMatchWarning",
    "NormalisedHead",
    "OverflowCheck",
    "ParameterGroups",
    "Pass",
    "PassResult",
    "PatchConvolution",
    "RateSchedule",
    "Recompute",
    "ReplaceOptimizer",
    "ShardOptimizer",
    "TagGradientCentralization",
    "WeightAverage",
    "compile_program",
    "option",
    "parse_pipeline",
    "print_pipeline",
    "register",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        from .framework.registry import CLASSES, REGISTRY

        own = next((pass_name for pass_name, cls in CLASSES.items() if cls == name), None)
        if own is None:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return REGISTRY[own]
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return __all__
