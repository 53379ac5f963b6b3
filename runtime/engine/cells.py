"""The Cells that MindSpore runs. It parses their source, so they stand in a file of their own. Imports MindSpore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mindspore
from mindspore import nn, ops

from .model_end import at_end_of_training
from .waiting import WakesLate


class GraphRunner(nn.Cell):  # type: ignore[misc]
    """A stateless graph closed over the Parameters of its trailing inputs; in-place primitives update them.

    Passing the Parameters as arguments of the call instead costs time for each of them on every call.
    """

    def __init__(self, graph: Any, state: Iterable[mindspore.Parameter]):
        super().__init__(auto_prefix=False)
        self.graph = graph
        self.state = mindspore.ParameterTuple(state)
        self._alone: list[nn.GraphCell] = []
        self._compiled_for: tuple[Any, ...] = ()

    def construct(self, *inputs):  # type: ignore[no-untyped-def]
        return self.graph(*inputs, *self.state)

    def __call__(self, *inputs: Any) -> Any:
        if self._alone:
            return self._alone[0](*inputs, *self.state)
        try:
            # As nn.GraphCell: a loaded graph can only be compiled, also where the user runs in PyNative mode.
            if not self._compiled_for:
                return self.compile_and_run(*inputs)  # may start MindSpore's threads
            with WakesLate():
                return self.compile_and_run(*inputs)
        except Exception as error:
            return self._run_alone(inputs, error)

    def compile(self, *inputs: Any) -> None:
        """compile_and_run asks for it before each run. MindSpore looks for the compiled graph each time, which takes
        longer than the call of a small one; it is that of the last run where all inputs are Tensors of the same types.
        """
        tensors = all(type(value) is mindspore.Tensor for value in inputs)
        asked = (self.phase, *((value.shape, value.dtype) for value in inputs)) if tensors else ()
        if not asked or asked != self._compiled_for:
            self._compiled_for = ()
            super().compile(*inputs)
            self._compiled_for = asked

    def _run_alone(self, inputs: tuple[Any, ...], error: Exception) -> Any:
        """MindSpore optimizes a graph that a Cell calls once more than one that stands alone, and some graphs with
        control flow do not compile after that. Where compilation failed, and so nothing ran, the graph runs alone
        from now on."""
        self._compiled_for = ()
        try:
            self.compile(*inputs)
        except Exception:
            alone = nn.GraphCell(self.graph)
            try:
                result = alone(*inputs, *self.state)
            except Exception:
                raise error from None
            self._alone.append(alone)
            return result
        raise error


class FunctionRunner(GraphRunner):
    """The same, with the graph as a function that is called (see :mod:`.dispatch`)."""

    @mindspore.no_inline
    def call(self, *inputs):  # type: ignore[no-untyped-def]
        return self.graph(*inputs, *self.state)

    def construct(self, *inputs):  # type: ignore[no-untyped-def]
        return self.call(*inputs)


class OverRanks(nn.Cell):  # type: ignore[misc]
    """A collective by itself: a tensor of this rank in, what ``collective`` makes of all ranks' out."""

    def __init__(self, collective: ops.Primitive) -> None:
        super().__init__(auto_prefix=False)
        self.collective = collective

    def construct(self, values):  # type: ignore[no-untyped-def]
        return self.collective(values)


class ProgramCell(nn.Cell):  # type: ignore[misc]
    """A program as a Cell for ``mindspore.train.Model(cell).train(…)``; each call is one micro-batch.

    It holds the session's Parameters by their clean names. The graphs are chosen in Python, so dataset sinking does not
    apply.
    """

    def __init__(
        self,
        state: Iterable[mindspore.Parameter],
        step: Callable[[tuple[Any, ...]], Any],
        resume: Callable[[], None],
        ended: Callable[[], None],
    ):
        super().__init__(auto_prefix=False)
        self._step = step
        self._resume = resume
        self._ended = ended
        self._begins = True
        for parameter in state:
            self.insert_param_to_cell(parameter.name, parameter, check_name_contain_dot=False)

    def set_train(self, mode: bool = True) -> ProgramCell:
        """Model calls this before it trains: a checkpoint may have been loaded into the Parameters since."""
        super().set_train(mode)
        self._resume()
        self._begins = True
        return self

    def __call__(self, *inputs: Any) -> Any:
        if self._begins:
            self._begins = False
            at_end_of_training(self._ended)
        return self._step(inputs)


class NetworkCell(GraphRunner):
    """The evaluation network as a Cell, over the Parameters of a session; see :class:`.prediction.Prediction`."""

    def __init__(
        self,
        graph: Any,
        state: Iterable[mindspore.Parameter],
        predict: Callable[[Sequence[Any]], tuple[Any, ...]],
    ):
        super().__init__(graph, state)
        self._predict = predict
        self.set_train(False)

    def __call__(self, *inputs: Any) -> Any:
        outputs = self._predict(inputs)
        return outputs[0] if len(outputs) == 1 else outputs
