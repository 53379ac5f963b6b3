"""The losses and optimizers of ``mindspore.nn`` by name, and their options checked against their signatures.

Names are compared without case and hyphens: ``rmsprop``, ``rms-prop`` and ``RMSProp`` are one. Imports MindSpore only
when something is made.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import Any

from ...ir.core.errors import OptionError, nearest
from ...ir.core.spec import Spec
from ...ir.core.types import DType, TensorType
from .export import first_line

SAME = "as the prediction, float32"
CLASSES, LONG_CLASSES = "class numbers, int32", "class numbers, int64"
SAME_CLASSES = "as the prediction, int32"


@dataclass(frozen=True)
class LossKind:
    """A loss of ``mindspore.nn`` called ``name``; what its ``labels`` are; ``defaults`` of ours."""

    name: str
    labels: str = SAME
    defaults: tuple[tuple[str, Any], ...] = ()


LOSSES = {
    "softmax-cross-entropy": LossKind(
        "SoftmaxCrossEntropyWithLogits", CLASSES, (("sparse", True), ("reduction", "mean"))
    ),
    "cross-entropy": LossKind("CrossEntropyLoss", CLASSES),
    "nll": LossKind("NLLLoss", CLASSES),
    "focal": LossKind("FocalLoss", SAME_CLASSES),
    "mse": LossKind("MSELoss"),
    "rmse": LossKind("RMSELoss"),
    "l1": LossKind("L1Loss"),
    "mae": LossKind("MAELoss"),
    "smooth-l1": LossKind("SmoothL1Loss", SAME, (("reduction", "mean"),)),
    "huber": LossKind("HuberLoss"),
    "bce": LossKind("BCELoss", SAME, (("reduction", "mean"),)),
    "bce-with-logits": LossKind("BCEWithLogitsLoss"),
    "soft-margin": LossKind("SoftMarginLoss"),
    "hinge-embedding": LossKind("HingeEmbeddingLoss"),
    "kl-div": LossKind("KLDivLoss"),
    "poisson-nll": LossKind("PoissonNLLLoss"),
    "dice": LossKind("DiceLoss"),
    "multi-class-dice": LossKind("MultiClassDiceLoss"),
    "multilabel-margin": LossKind("MultilabelMarginLoss", SAME_CLASSES),
    "multi-label-soft-margin": LossKind("MultiLabelSoftMarginLoss"),
    "multi-margin": LossKind("MultiMarginLoss", LONG_CLASSES),
}
"""By the name given to ``--loss``; the name of the class, with or without ``Loss``, does as well."""

OPTIMIZERS = {
    "momentum": "Momentum", "sgd": "SGD", "adam": "Adam", "adam-weight-decay": "AdamWeightDecay", "adamax": "AdaMax",
    "adagrad": "Adagrad", "adadelta": "Adadelta", "adafactor": "AdaFactor", "adam-offload": "AdamOffload",
    "asgd": "ASGD", "ftrl": "FTRL", "lamb": "Lamb", "lazy-adam": "LazyAdam",
    "proximal-adagrad": "ProximalAdagrad", "rmsprop": "RMSProp", "rprop": "Rprop",
}  # fmt: skip
RATE, REDUCTION = "learning_rate", "reduction"
TENSORS = ("weight", "weights", "pos_weight")
ALIASES = {"lr": RATE}

ELSEWHERE = {
    "adamw": "adam-weight-decay", "adam-w": "adam-weight-decay", "nesterov": "momentum", "amsgrad": "adam",
    "softmax": "softmax-cross-entropy", "categorical-crossentropy": "softmax-cross-entropy",
    "sparse-categorical-crossentropy": "softmax-cross-entropy", "logistic": "bce-with-logits",
    "binary-crossentropy": "bce", "mean-squared-error": "mse", "l2": "mse", "mean-absolute-error": "mae",
}  # fmt: skip
"""Names that other frameworks give to something much like ours. Named in the error only: AdamW of torch corrects its
moments for their start, ``AdamWeightDecay`` does not, so neither may pass for the other."""


def find_loss(spec: Spec) -> LossKind:
    by_name = {_key(name): kind for name, kind in LOSSES.items()}
    by_name.update({_key(kind.name): kind for kind in LOSSES.values()})
    kind = by_name.get(_key(spec.name)) or by_name.get(_key(spec.name).removesuffix("loss"))
    if kind is None:
        raise _unknown("loss", spec.name, list(LOSSES), "--list-losses")
    return kind


def make_loss(spec: Spec) -> Any:
    """The loss cell of ``mindspore.nn``. OptionError for a name or an option that does not exist."""
    from mindspore import nn

    kind = find_loss(spec)
    return _make(getattr(nn, kind.name), f"loss '{spec.name}'", {**dict(kind.defaults), **spec.options})


def make_optimizer(spec: Spec, parameters: list[Any], rate: float | None = None) -> Any:
    """The optimizer of ``mindspore.nn`` for these Parameters. OptionError as for losses. ``rate``: its learning rate
    where the options give none, unless it computes one by itself then."""
    check_optimizer(spec)
    from mindspore import nn

    name = next(name for short, name in OPTIMIZERS.items() if _key(spec.name) in (_key(short), _key(name)))
    options, cls = spec.options, getattr(nn, name)
    given = {"lr", RATE} & {k.replace("-", "_") for k in options}
    if rate is not None and not given and parameters_of(cls)[RATE].default is not None:
        options = {**options, RATE: rate}
    return _make(cls, f"optimizer '{spec.name}'", options, parameters)


def check_optimizer(spec: Spec) -> None:
    """OptionError for an optimizer that does not exist; needs no MindSpore."""
    if _key(spec.name) not in {_key(n) for pair in OPTIMIZERS.items() for n in pair}:
        raise _unknown("optimizer", spec.name, list(OPTIMIZERS), "--list-optimizers")


def _unknown(what: str, name: str, known: list[str], listing: str) -> OptionError:
    """Names what was probably meant, and all there are."""
    meant = {_key(theirs): ours for theirs, ours in ELSEWHERE.items()}.get(_key(name))
    hint = f" (did you mean '{meant}'?)" if meant in known else nearest(name, known)
    listed = "" if "(known: " in hint else f" There are {', '.join(sorted(known))}."
    return OptionError(
        f"no {what} is called '{name}'{hint}.{listed}", command=f"boost-compile {listing} shows their options."
    )


def label_type(spec: Spec, prediction: TensorType) -> TensorType:
    """The type of a loss's labels, for predictions of a type."""
    labels = find_loss(spec).labels
    if find_loss(spec).name == "SoftmaxCrossEntropyWithLogits" and spec.options.get("sparse", True) is False:
        labels = SAME
    if labels == SAME:
        return TensorType(DType.FLOAT32, prediction.shape)
    if labels == SAME_CLASSES:
        return TensorType(DType.INT32, prediction.shape)
    if len(prediction.shape) < 2:
        raise OptionError(
            f"loss '{spec.name}' takes predictions of shape [batch, classes, …], but the graph returns {prediction}"
        )
    return TensorType(
        DType.INT64 if labels == LONG_CLASSES else DType.INT32, (prediction.shape[0], *prediction.shape[2:])
    )


def _make(cls: Any, what: str, options: dict[str, Any], *first: Any) -> Any:
    known = parameters_of(cls)
    names = [n for n, p in known.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)][1 + len(first) :]
    given = {(ALIASES.get(k, k) if k not in names else k).replace("-", "_"): v for k, v in options.items()}
    for key in given:
        if key not in names:
            raise OptionError(f"{what} has no option '{key}'{nearest(key, names)}")
    missing = [n for n in names if known[n].default is inspect.Parameter.empty and n not in given]
    if missing:
        raise OptionError(f"{what} needs option {', '.join(missing)}")
    taken = {key: _taken(f"{what}: option '{key}'", key, value, known[key].default) for key, value in given.items()}
    try:
        return cls(*first, **taken)
    except (TypeError, ValueError, RuntimeError) as error:
        raise OptionError(f"{what}: {first_line(error)}") from error


def _taken(option: str, key: str, value: Any, default: Any) -> Any:
    """A value as the class takes it, told by its default: MindSpore takes no whole numbers for others. OptionError for
    a value of another kind, which MindSpore would meet while it compiles."""
    if value is None and (default is None or key == REDUCTION):
        return None if default is None else "none"
    if key in TENSORS:
        raise OptionError(
            f"{option} takes a tensor, which cannot be written here: export a training cell with this loss"
        )
    if key == RATE:
        kind = "a number, or a list with one for each step"
        rates = value if isinstance(value, list) and value else [value]
        numbers = [_number(option, each, kind) for each in rates]
        return numbers if rates is value else numbers[0]
    if isinstance(default, bool):
        return _of_type(bool, option, "true or false", value)
    if isinstance(default, int):
        return _of_type(int, option, "a whole number", value)
    if isinstance(default, tuple):
        if not isinstance(value, list) or len(value) != len(default):
            raise OptionError(f"{option} takes a list of {len(default)} numbers, not {value!r}")
        return tuple(_number(option, each) for each in value)
    if isinstance(default, float) or default is inspect.Parameter.empty:
        return _number(option, value)
    return value


def _of_type(type_: type, option: str, kind: str, value: Any) -> Any:
    if type(value) is not type_:
        raise OptionError(f"{option} takes {kind}, not {value!r}")
    return value


def _number(option: str, value: Any, kind: str = "a number") -> float:
    if type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    raise OptionError(f"{option} takes {kind}, not {value!r}")


def parameters_of(cls: Any) -> dict[str, inspect.Parameter]:
    """Those of a constructor, seen through MindSpore's decorators, which hold the function in their closure."""
    function = cls.__init__
    while inner := [v for v in inspect.getclosurevars(function).nonlocals.values() if inspect.isfunction(v)]:
        function = inner[0]
    return dict(inspect.signature(function).parameters)


def _key(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
