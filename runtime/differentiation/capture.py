"""From a live Cell to a program, without a file in the user's hands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from ...ir.analysis.training.trains import what_is_missing
from ...ir.core.errors import Error, RuntimeFailure
from ...ir.core.program import Program
from ...ir.rewrite.evaluation import note_label
from ..engine.live import LiveCell
from ..engine.scratch import scratch_folder
from .export import first_line, read_export

HOW = (
    "Pass a training cell, bc.capture(nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer), *inputs), or its "
    "parts, bc.capture(network, loss, optimizer, *inputs), with arrays or Tensors of one micro-batch as inputs (None "
    "as the loss of a network that returns its loss)"
)
NO_SOURCE = ("temporary source code", "could not get source", "source code not available")
"""Messages of MindSpore, and of Python, about code that no file holds."""


def capture(cell: Any, *inputs: Any) -> Program:
    """Captures a live training cell as a program, as if it had been exported and loaded.

    ``cell`` is a training cell (``nn.TrainOneStepCell(…)`` or one of your own that holds an optimizer). ``inputs`` are
    one micro-batch: arrays or Tensors, ``Tensor(shape=[None, …])`` for any number of samples; none for a cell that
    makes its data itself. You may give the parts of
    a cell instead: ``capture(network, loss, optimizer, *inputs)``, with the labels as the last input, and None for
    ``loss`` where the network returns its loss.

    A :class:`Session` of the program, or of a program that it is compiled to, trains the Parameters of the cell in
    place: ``network`` is trained afterwards. The program itself keeps the values at the time of capture
    (``program.save``). A cell that is in inference mode is captured in training mode. :class:`RuntimeFailure` for
    arguments that are no training cell, or a cell that MindSpore cannot compile.
    """
    _refuse_other_kinds(cell)
    training, given, is_labelled = _training_cell(cell, inputs)
    name = _name(cell)
    if not given and _takes_inputs(training):
        raise RuntimeFailure(f"{name}: the inputs are missing.", python=f"{HOW}.")
    return _captured(name, training, [_tensor(name, i, value) for i, value in enumerate(given)], is_labelled)


def _captured(name: str, training: Any, tensors: Sequence[Any], is_labelled: bool) -> Program:
    with scratch_folder() as folder, _in_training_mode(training):
        path = folder / "captured.mindir"
        _export(name, training, tensors, path)
        program = read_export(path)
    missing = what_is_missing(program)
    if missing is not None:
        raise RuntimeFailure(f"{name} {missing}, so there is nothing to train.", python=f"{HOW}.")
    program.name, program.source = name, {"cell": name}
    if is_labelled:
        note_label(program, program.graphs["step"].inputs[-1].name)
    inputs = [value.name for value in program.graphs["step"].inputs]

    def export(size: int, axes: Mapping[str, int]) -> Program:
        """Samples are repeated, or left out: of data an export takes no more than the shape."""
        made = [_of_size(t, size, axes.get(n)) for n, t in zip(inputs, tensors, strict=True)]
        return _captured(name, training, made, is_labelled)

    program.live = _live(training, program, export)
    return program


def _of_size(tensor: Any, size: int, axis: int | None) -> Any:
    import mindspore
    import numpy as np

    if axis is None:
        return tensor
    array = tensor.asnumpy()
    return mindspore.Tensor(array.take(np.arange(size) % array.shape[axis], axis), tensor.dtype)


def program_of(source: Any, inputs: Sequence[Any] = ()) -> Program:
    """``source`` itself if it is a Program; the program in a file; or that of a live Cell, captured with ``inputs``."""
    if not isinstance(source, (Program, str, os.PathLike)):
        return capture(source, *inputs)
    if inputs:
        kind = "a Program" if isinstance(source, Program) else f"the file {os.fspath(source)}"
        raise RuntimeFailure(f"inputs were given with {kind}, which needs none: they are for a live Cell.")
    if isinstance(source, Program):
        return source
    from ...ir.formats.storage.load import load

    return load(source)


# -- what was given ----------------------------------------------------------------------------------------------------


def _refuse_other_kinds(cell: Any) -> None:
    """RuntimeFailure for what is no Cell; it says what to do with such a thing instead."""
    if isinstance(cell, Program):
        raise RuntimeFailure("this is a Program already.", python="bc.compile and bc.Session take it as it is.")
    if isinstance(cell, (str, os.PathLike)):
        raise RuntimeFailure(f"'{os.fspath(cell)}' is a path.", python="bc.load, bc.compile and bc.Session take paths.")
    from mindspore import nn
    from mindspore.train import Model

    if isinstance(cell, Model):
        remedy = f"Capture its cell, model.train_network. {HOW}."
    elif isinstance(cell, type):
        remedy = f"Make one: {cell.__name__}(…). {HOW}."
    elif isinstance(cell, nn.Optimizer):
        remedy = f"The order is network, loss, optimizer, inputs. {HOW}."
    elif isinstance(cell, nn.Cell):
        return
    else:
        remedy = f"{HOW}."
    raise RuntimeFailure(f"{_spelled(cell)} is no Cell that trains.", python=remedy)


def _training_cell(cell: Any, inputs: Sequence[Any]) -> tuple[Any, Sequence[Any], bool]:
    """The training cell, made of its parts where those were given, the inputs of one micro-batch, and whether the last
    of them alone is the label."""
    from mindspore import nn

    from .cells import LossOfLastInput

    at = next((i for i, value in enumerate(inputs) if isinstance(value, nn.Optimizer)), None)
    if at is None:
        _refuse_parts(inputs)
        return cell, inputs, False
    if at != 1:
        raise RuntimeFailure(
            f"the optimizer is argument {at + 2}, but the order is network, loss, optimizer, inputs.",
            python="Where the network returns its loss, pass None for the loss.",
        )
    loss, optimizer = inputs[0], inputs[1]
    if isinstance(loss, type) or not (loss is None or callable(loss)) or isinstance(loss, nn.Optimizer):
        raise RuntimeFailure(f"{_spelled(loss)} is no loss.", python=f"{HOW}.")
    own = {id(parameter) for parameter in cell.get_parameters()}
    if not any(id(parameter) in own for parameter in optimizer.parameters):
        raise RuntimeFailure(
            f"{_spelled(optimizer)} updates no Parameter of {_name(cell)}.",
            python=f"Make it for this network: {type(optimizer).__name__}(network.trainable_params(), …).",
        )
    network = cell if loss is None else LossOfLastInput(cell, loss)
    return nn.TrainOneStepCell(network, optimizer), inputs[2:], loss is not None


def _takes_inputs(cell: Any) -> bool:
    """Whether a training cell, or the network that it hands its inputs to, cannot do without any."""
    wanted = signature(cell.construct).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in wanted):
        return not hasattr(cell, "network") or _takes_inputs(cell.network)
    return any(p.default is p.empty for p in wanted)


def _refuse_parts(inputs: Sequence[Any]) -> None:
    """Cells, classes and functions among the inputs: parts of a training cell, of which one is missing or wrong."""
    for value in inputs:
        if isinstance(value, type):
            raise RuntimeFailure(f"{_spelled(value)} is no instance.", python=f"Make one: {value.__name__}(…). {HOW}.")
    for value in inputs:
        if any(base.__name__ == "Optimizer" for base in type(value).__mro__):
            raise RuntimeFailure(
                f"{_spelled(value)} is an optimizer that MindSpore cannot export.",
                python="Use one of mindspore.nn, such as nn.Momentum(network.trainable_params(), 0.01, 0.9).",
            )
    for value in inputs:
        if callable(value):
            raise RuntimeFailure(f"{_spelled(value)} is no input, and no optimizer stands behind it.", python=f"{HOW}.")


def _tensor(name: str, place: int, value: Any) -> Any:
    import mindspore
    import numpy as np

    if isinstance(value, mindspore.Tensor):
        return value
    try:
        if isinstance(value, (np.ndarray, np.generic)):
            return mindspore.Tensor(np.array(value))
        return mindspore.Tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise RuntimeFailure(
            f"{name}: {_spelled(value)} is no input (number {place}); give an array or a Tensor."
        ) from None


def _spelled(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    named = getattr(value, "__name__", None)
    return f"the function {named}" if callable(value) and isinstance(named, str) else f"this {type(value).__name__}"


def _name(cell: Any) -> str:
    """The class of the first part that is not MindSpore's own: the user's network."""
    classes = [type(part) for _, part in cell.cells_and_names()]
    own = [c for c in classes if c.__module__.split(".")[0] not in ("mindspore", __name__.split(".")[0])]
    return str((own or classes)[0].__name__)


# -- the export --------------------------------------------------------------------------------------------------------


@contextmanager
def _in_training_mode(cell: Any) -> Iterator[None]:
    """A cell none of whose parts is in training mode is in it for a while. Modes that were set stay as they are: a
    BatchNorm may be held in inference mode on purpose."""
    if any(part.training for _, part in cell.cells_and_names()):
        yield
        return
    cell.set_train(True)
    try:
        yield
    finally:
        cell.set_train(False)


def _export(name: str, cell: Any, inputs: Sequence[Any], path: Path) -> None:
    import mindspore
    from mindspore import nn

    try:
        for parameter in cell.get_parameters():
            parameter.init_data()
        mindspore.export(cell, *inputs, file_name=str(path), file_format="MINDIR")
    except Error:
        raise
    except Exception as error:
        text = str(error)
        if any(words in text.lower() for words in NO_SOURCE):
            raise RuntimeFailure(
                f"{name}: MindSpore compiles the source of a Cell, and that of this one stands in no file that it can "
                "read, as where a class is typed at Python's prompt.",
                python="Put its classes in a file and import them (in a notebook: '%%writefile network.py' as first "
                "line of a cell, then 'from network import …').",
            ) from error
        shapes = ", ".join(f"{str(t.dtype).lower()}{list(t.shape)}" for t in inputs)
        sentence = first_line(error)
        optimizers = (part for _, part in cell.cells_and_names() if isinstance(part, nn.Optimizer))
        remedy = "Do the inputs fit, one by one, what it takes?"
        if _lacks_sens(text):
            sentence = "a gradient function with sens_param=True lacks its sens, the derivative of the loss."
            remedy = "Pass it behind the other arguments, ops.ones_like(loss), or make the function without sens_param."
        elif (found := re.search(r"wasn't created in nn\.Cell.*The parameter name is: (.+?)\.", text)) is not None:
            sentence = f"Parameter '{found[1]}' is part of no Cell, and MindSpore exports no such Parameter."
            remedy = (
                "Make it part of one: cell.insert_param_to_cell(name, parameter). The learning rates of an optimizer "
                "of mindspore.mint or mindspore.experimental are group['lr'] of each group in optimizer.param_groups."
            )
        elif next(optimizers, None) is None:
            remedy = f"{HOW}."
        elif any(tensor.dtype == mindspore.float64 for tensor in inputs):
            remedy = "numpy makes float64 by default; networks take float32: array.astype('float32')."
        sentence = sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
        raise RuntimeFailure(f"{name} cannot be compiled for {shapes}: {sentence}", python=remedy) from error


def _lacks_sens(text: str) -> bool:
    """Whether MindSpore's message is of a gradient function that was given one argument too few."""
    found = re.search(r"function is (\d+), but the number of provided arguments is (\d+)", text)
    return found is not None and int(found[1]) == int(found[2]) + 1 and "FunctionGraph ID : grad_" in text


def _live(cell: Any, program: Program, export: Callable[[int, Mapping[str, int]], Program]) -> LiveCell:
    parameters = {p.name: p for p in cell.get_parameters() if p.name in program.state}
    return LiveCell(
        parameters,
        {name: variable.data for name, variable in program.state.items()},
        {name: variable.role for name, variable in program.state.items()},
        export,
    )
