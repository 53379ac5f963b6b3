"""The values of a program's state, as the host reads and writes them: in the Parameters' own memory where it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.core.primitives import CPU
from ...ir.core.types import DType, TensorType
from ..lowering.context import Context


class StateMemory:
    """``parameters``: those of the states that this rank holds, by name. ``types``: of all states, whole."""

    def __init__(self, parameters: Mapping[str, Any], types: Mapping[str, TensorType], context: Context):
        self._parameters = parameters
        self._types = types
        self._context = context
        self._on_cpu = context.target == CPU
        self._is_here = self._on_cpu and _tells_addresses()
        """Whether the memory of the states is the host's, who can find it."""
        self._found: dict[str, tuple[int, Any]] = {}
        """The memory of states that the host looked for: where it begins, and as an array."""

    def read(self, name: str) -> Any:
        """A copy of the value of a state that this rank holds, or of its piece, as numpy array, bfloat16 as float32."""
        import mindspore

        parameter = self._parameters[name]
        if self._types[name].dtype is DType.BFLOAT16:
            return np.array(parameter.astype(mindspore.float32).asnumpy())
        # asnumpy() shares the memory that the next step writes.
        return np.array(parameter.asnumpy())

    def look(self, name: str) -> Any:
        """As :meth:`read`, but not copied where the state's memory is the host's: to be looked at before the next step,
        and not to be written."""
        if self._types[name].dtype is DType.BFLOAT16:
            return self.read(name)
        view = self.view_of(name)
        return self._parameters[name].asnumpy() if view is None else view

    def like(self, name: str, piece: slice | None = None) -> Any:
        """An array of the type that :meth:`read` gives for a state or a piece of it, without memory of its own, whoever
        holds it."""
        type_ = self._types[name]
        dtype = "float32" if type_.dtype is DType.BFLOAT16 else type_.dtype.value
        shape = type_.shape if piece is None else (piece.stop - piece.start,)
        return np.broadcast_to(np.zeros((), dtype), shape)

    def tensor(self, name: str, value: Any) -> Any:
        """A value for a state, of its shape and dtype (float32 for bfloat16), as MindSpore holds it."""
        import mindspore

        return mindspore.Tensor(value, mindspore.bfloat16 if self._types[name].dtype is DType.BFLOAT16 else None)

    def write(self, values: Mapping[str, Any]) -> None:
        """Sets values of the state, of its shapes and dtypes (float32 for bfloat16); those that other ranks alone hold
        are left to them."""
        memory = self._views()
        for name, value in values.items():
            if not self._context.holds(name):
                continue
            if name in self._context.pieces:
                value = value.reshape(-1)[self._context.pieces[name]]
            if name in memory:
                memory[name][...] = value
            else:
                self.assign(name, value)

    def assign(self, name: str, value: Any) -> None:
        """As :meth:`write`, of one state or the piece of it that this rank holds, by MindSpore."""
        import mindspore
        from mindspore import ops

        parameter, tensor = self._parameters[name], self.tensor(name, value)
        if tensor.dtype == mindspore.bfloat16 and self._on_cpu:  # has no Assign kernel for bfloat16
            parameter.set_data(tensor)
            return
        # set_data can give the Parameter other memory than the compiled graph writes; assign cannot.
        ops.assign(parameter, tensor)

    def clear(self, names: Sequence[str]) -> None:
        """Writes zeros; a graph on a CPU has been computed when its call returns."""
        for name in names:
            view = self.view_of(name)
            if view is None:
                self.assign(name, self.like(name, self._context.pieces.get(name)))
            else:
                view.fill(0)

    def view_of(self, name: str) -> Any | None:
        """As :meth:`_find`. Parameters keep their memory, so where it is found once, its address alone is compared."""
        address, view = self._found.get(name, (None, None))
        if view is None or address != self._parameters[name].data_ptr():
            view = self._find(name)
            if view is not None:
                self._found[name] = (view.ctypes.data, view)
        return view

    def _views(self) -> dict[str, Any]:
        """The state's own memory, where the host can write it: an Assign takes some fifty times as long as a copy.

        All of the state is asked for, written or not: that waits for whatever still computes it, or from it."""
        found = {name: self._find(name) for name in self._parameters if self._types[name].dtype is not DType.BFLOAT16}
        return {name: view for name, view in found.items() if view is not None}

    def _find(self, name: str) -> Any | None:
        """The memory of a state as an array, on a CPU; None where the host cannot write it."""
        if not self._is_here:
            return None
        parameter = self._parameters[name]
        view = parameter.asnumpy()
        return view if view.flags.writeable and parameter.data_ptr() == view.ctypes.data else None


def _tells_addresses() -> bool:
    """Whether this MindSpore says where the memory of a Parameter begins."""
    import mindspore

    return hasattr(mindspore.Tensor, "data_ptr")
