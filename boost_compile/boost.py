"""The names of ``mindspore.boost``, as signposts: using one is an error that says which pass does the same here, and
which line to write instead, with the arguments that were given. ``docs/from-mindspore-boost.md`` tells the whole story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from .ir.core.errors import Error
from .passes.framework.options import print_value

__all__ = [
    "AdaSum",
    "AutoBoost",
    "BoostTrainOneStepCell",
    "BoostTrainOneStepWithLossScaleCell",
    "DimReduce",
    "FreezeOpt",
    "GradientAccumulation",
    "GradientFreeze",
    "GroupLossScaleManager",
    "LessBN",
    "Moved",
    "OptimizerProcess",
    "ParameterProcess",
    "enhanced_amp",
    "freeze_cell",
]


class Moved(Error):
    """A name of ``mindspore.boost`` was used; the message holds what to write instead."""


def enhanced_amp(x: Any, layer1: int, layer2: int) -> Any:
    """Stands for a ``GroupLossScaleManager`` that a network calls between its layers: gives x back.

    ``group-loss-scale`` finds by itself where one group of layers ends, so nothing need be marked.
    """
    return x


class Signpost:
    """A name of ``mindspore.boost``. ``instead`` has the parameters of what bore it there, and returns a pipeline, or
    the code to write if that is more: then ``here`` names what takes its place. ``note``: what else there is to do."""

    def __init__(self, name: str, instead: Callable[..., str], *, here: str = "", note: str = ""):
        self._name, self._instead, self._here, self._note = name, instead, here, note

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        try:
            text = self._instead(*arguments, **named)
        except TypeError:  # arguments that upstream would not take either
            text = self._instead()
        raise Moved(self._message(text))

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise Moved(self._message(self._instead()))

    def __repr__(self) -> str:
        return f"<signpost: {self._message(self._instead())}>"

    def _message(self, text: str) -> str:
        from .passes.framework.pipeline import parse_pipeline

        if text.startswith("bc."):
            code, here = text, self._here
        else:
            code = f'bc.compile(bc.load("model.mindir"), {text!r})'
            names = [f"'{p.name}'" for p in parse_pipeline(text)]
            here = f"the pass {names[0]}" if len(names) == 1 else f"the passes {' and '.join(names)}"
        note = f"\n  {self._note}" if self._note else ""
        return (
            f"mindspore.boost.{self._name} is {here} here, on the training graph that mindspore.export wrote of the "
            f"cell without it. Write instead:\n    {code}{note}\n  (docs/from-mindspore-boost.md, {self._name})"
        )


def _pass(name: str, **options: Any) -> str:
    """The text of a pass with those options that are plain values."""
    plain = {key: value for key, value in options.items() if isinstance(value, (bool, int, float, str, list))}
    shown = ",".join(f"{key}={print_value(value)}" for key, value in plain.items() if value != [])
    return f"{name}{{{shown}}}" if shown else name


def _globs(groups: Any) -> list[str]:
    """Groups of parameters as globs over their names; empty where they have none."""
    found = []
    for group in groups if isinstance(groups, (list, tuple)) else ():
        names = list(_names(group if isinstance(group, (list, tuple)) else ()))
        if not names:
            return []
        found.append("|".join(names))
    return found


def _names(parameters: Iterable[Any]) -> Iterable[str]:
    for parameter in parameters:
        if isinstance(parameter, Mapping):  # an optimizer's group
            yield from _names(parameter.get("params", ()))
        elif isinstance(name := getattr(parameter, "name", None), str):
            yield name


def _whole(numbers: Any) -> list[int]:
    listed = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    return [int(n) for n in listed] if isinstance(listed, (list, tuple)) else []


# -- what to write: functions with the parameters of mindspore.boost ---------------------------------------------


def _auto_boost(level: Any = "O1", boost_config_dict: Any = None) -> str:
    config = f"{boost_config_dict!r}, " if isinstance(boost_config_dict, Mapping) else ""
    return f'bc.compile(bc.load("model.mindir"), bc.from_boost_config({config}level={level!r}))'


def _step_cell(network: Any = None, optimizer: Any = None, sens: Any = None) -> str:
    scale = isinstance(sens, (int, float)) and sens != 1
    passes = (
        f"{_pass('loss-scale', mode='static', init=float(sens))!r}" if scale else 'bc.from_boost_config(level="O1")'
    )
    return f'bc.Session(bc.compile(bc.load("model.mindir"), {passes}))'


def _scaled_cell(network: Any = None, optimizer: Any = None, scale_sense: Any = None) -> str:
    if isinstance(scale_sense, (int, float)):
        return f"{_pass('loss-scale', mode='static', init=float(scale_sense))},overflow-check"
    return "loss-scale{mode=dynamic},overflow-check"


def _less_bn(network: Any = None, fn_flag: Any = False) -> str:
    head = ",normalised-head{layers=every-cell,bias=drop}" if fn_flag else ""
    return f"less-bn{{select=pattern-or-inner}}{head}"


def _freeze(param_groups: Any = None, freeze_type: Any = None, freeze_p: Any = None, total_steps: Any = None) -> str:
    kind = {0: "continuous", 1: "interval"}.get(freeze_type)
    given = {"groups": param_groups, "type": kind, "probability": freeze_p, "total_steps": total_steps}
    return _pass("gradient-freeze", **given, after="repeat")


def _freeze_optimizer(opt: Any = None, train_parameter_groups: Any = None, train_strategy: Any = None) -> str:
    strategy = _whole(train_strategy)
    how = {"strategy": strategy, "after": "repeat"} if strategy else {"type": "round-robin"}
    return _pass("gradient-freeze", train=_globs(train_parameter_groups), **how)


def _freeze_cell(
    reducer_flag: Any = None,
    network: Any = None,
    optimizer: Any = None,
    sens: Any = None,
    grad: Any = None,
    use_grad_accumulation: Any = False,
    mean: Any = None,
    degree: Any = None,
    max_accumulation_step: Any = 1,
) -> str:
    accumulated = f",{_accumulation(max_accumulation_step)}" if use_grad_accumulation is True else ""
    return "gradient-freeze" + accumulated


def _accumulation(max_accumulation_step: Any = None, optimizer: Any = None) -> str:
    return _pass("gradient-accumulation", steps=max_accumulation_step)


def _ada_sum(rank: Any = None, device_number: Any = None, group_number: Any = None, parameter_tuple: Any = None) -> str:
    return _pass("adasum", devices_per_group=device_number)


def _dim_reduce(
    network: Any = None,
    optimizer: Any = None,
    weight: Any = None,
    pca_mat_local: Any = None,
    n_components: Any = None,
    rho: Any = None,
    gamma: Any = None,
    alpha: Any = None,
    sigma: Any = None,
    rank: Any = None,
    rank_size: Any = None,
) -> str:
    given = {"n_components": n_components, "rho": rho, "gamma": gamma, "alpha": alpha, "sigma": sigma}
    return _pass("dim-reduce", basis="pca_mat.npy", **given)


def _group_loss_scale(init_loss_scale: Any = None, loss_scale_groups: Any = None) -> str:
    numbers = init_loss_scale if isinstance(init_loss_scale, (list, tuple)) else [init_loss_scale]
    init = [float(n) for n in numbers if isinstance(n, (int, float))]
    groups = _globs(loss_scale_groups)
    return _pass("group-loss-scale", init=init, match=groups if len(groups) > 1 else [])


def _optimizer_process(opt: Any = None) -> str:
    return "gradient-centralization"


def _parameter_process() -> str:
    return "parameter-groups{split_points=[50,100]}"


AutoBoost = Signpost("AutoBoost", _auto_boost, here="bc.from_boost_config")
BoostTrainOneStepCell = Signpost("BoostTrainOneStepCell", _step_cell, here="bc.Session")
BoostTrainOneStepWithLossScaleCell = Signpost("BoostTrainOneStepWithLossScaleCell", _scaled_cell)
LessBN = Signpost("LessBN", _less_bn)
GradientFreeze = Signpost("GradientFreeze", _freeze)
FreezeOpt = Signpost("FreezeOpt", _freeze_optimizer)
freeze_cell = Signpost("freeze_cell", _freeze_cell)
GradientAccumulation = Signpost("GradientAccumulation", _accumulation)
AdaSum = Signpost("AdaSum", _ada_sum)
DimReduce = Signpost("DimReduce", _dim_reduce)
GroupLossScaleManager = Signpost(
    "GroupLossScaleManager",
    _group_loss_scale,
    note="A network that calls the manager takes boost_compile.boost.enhanced_amp in its place, and is exported so.",
)
OptimizerProcess = Signpost("OptimizerProcess", _optimizer_process)
ParameterProcess = Signpost("ParameterProcess", _parameter_process)
