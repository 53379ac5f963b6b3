"""An optimizer of MindSpore by itself, which is given gradients: as a program, which ``replace-optimizer`` puts in, and
as it runs in MindSpore, which judges that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...ir.core.data import numbers
from ...ir.core.errors import PassError
from ...ir.core.program import Program, StateVariable
from ...ir.core.spec import Spec
from ..engine.environment import prepare_environment
from ..engine.scratch import scratch_folder
from .catalogue import check_optimizer, make_optimizer
from .export import first_line, read_export


def export_update(
    optimizer: Spec, weights: Sequence[StateVariable], taken: Collection[str], rate: float | None = None
) -> Program:
    """What an optimizer does to ``weights``: one graph that takes their gradients in this order. Where names of its
    state are ``taken``, all get a number in front. ``rate``: its learning rate, where its options give none.

    OptionError for a name or an option that MindSpore lacks, PassError for an optimizer that it cannot export.
    """
    check_optimizer(optimizer)
    prepare_environment(())
    import mindspore

    from .cells import Update

    parameters = [mindspore.Parameter(_tensor(weight), name=weight.name) for weight in weights]
    made = make_optimizer(optimizer, parameters, rate)
    _rename(made, {weight.name for weight in weights}, taken)
    gradients = [mindspore.Tensor(shape=list(w.shape), dtype=p.dtype) for w, p in zip(weights, parameters, strict=True)]
    with scratch_folder() as folder:
        path = folder / "update.mindir"
        try:
            mindspore.export(Update(made).set_train(), *gradients, file_name=str(path), file_format="MINDIR")
        except Exception as error:
            raise PassError(f"MindSpore cannot export optimizer '{optimizer.name}': {first_line(error)}") from error
        return read_export(path)


def run_update(
    optimizer: Spec, weights: Sequence[StateVariable], rate: float | None = None
) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """An optimizer of MindSpore by itself: a function from arrays of ``weights`` as they stand, and of their gradients,
    to arrays of the weights behind one more update."""
    check_optimizer(optimizer)
    import mindspore

    from .cells import Update

    parameters = [mindspore.Parameter(_tensor(weight), name=weight.name) for weight in weights]
    cell = Update(make_optimizer(optimizer, parameters, rate)).set_train()

    def update(values: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        for parameter, value in zip(parameters, values, strict=True):
            if parameter.asnumpy().tobytes() != value.tobytes():  # somebody else has written it since
                # set_data can give it other memory than the compiled graph writes; assign cannot.
                mindspore.ops.assign(parameter, mindspore.Tensor(value, parameter.dtype))
        cell(*(mindspore.Tensor(g, p.dtype) for g, p in zip(gradients, parameters, strict=True)))
        return [parameter.asnumpy().copy() for parameter in parameters]

    return update


def _rename(optimizer: Any, weights: Collection[str], taken: Collection[str]) -> None:
    own = [p for p in optimizer.get_parameters() if p.name not in weights]
    number, prefix = 1, ""
    while any(prefix + p.name in taken for p in own):
        number += 1
        prefix = f"optimizer{number}."
    for parameter in own:
        parameter.name = prefix + parameter.name


def _tensor(weight: StateVariable) -> Any:
    import mindspore

    return mindspore.Tensor(numbers(weight.type, weight.data), getattr(mindspore, weight.dtype.value))
