"""A program on MindSpore: its state as Parameters, its graphs as Cells that update them in place."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.analysis.functions.calls import recursive_functions
from ...ir.analysis.targets import ADVICE, described, lacking, torn, torn_apart
from ...ir.analysis.training.results import names_of_results
from ...ir.core.data import BytesData, MappedData, ZeroData, from_numpy, numbers
from ...ir.core.errors import Error, RuntimeFailure
from ...ir.core.graph import Graph, State, tensor_type
from ...ir.core.predicates import draws
from ...ir.core.primitives import Family, facts
from ...ir.core.program import Program, StateVariable
from ...ir.core.types import DType, TensorType, TupleType, Type
from ...ir.rewrite.ranks.collectives import collectives
from ...ir.rewrite.ranks.shares import share_of
from ..lowering.arenas import Arenas
from ..lowering.context import Context
from ..lowering.division import divide
from ..lowering.host_part import HostPart, Pairs
from ..lowering.idle import idle_graph
from ..lowering.lower import FOR_ANY_GRAPH, lower
from .device import choose_device, first_paragraph, named_device
from .dispatch import as_function
from .divided import Divided
from .draws import Draws
from .environment import prepare_environment
from .live import LiveCell
from .moving import Moves
from .placing import Placing, can_place
from .ranks import create_group, join_ranks
from .scratch import scratch_folder

log = logging.getLogger("boost_compile")


class Engine:
    """Owns its Parameters, but for those that a ``live`` Cell has: it updates these in place. Two engines of one
    program share nothing else, unless one is made ``beside`` the other: then they share all state, whose names and
    types must agree, and graphs that both have. The program is not changed."""

    def __init__(
        self,
        program: Program,
        device: str,
        seed: int | None,
        live: LiveCell | None = None,
        beside: Engine | None = None,
    ):
        _refuse_foreign_code(program)
        device = named_device(device)
        _refuse_without_kernel(program, device)
        prepare_environment(program.graphs.values() if device == "CPU" else ())
        _set_device(device)
        self.device = device
        self.ranks = join_ranks()
        self.graphs: dict[str, Graph] = {name: program.graphs[name] for name in program.schedule.graphs()}
        if self.ranks.size > 1 and not any(True for graph in self.graphs.values() for _ in collectives(graph)):
            log.warning(
                "rank %d of %d trains by itself: the program exchanges nothing (compile it with data-parallel)",
                self.ranks.rank,
                self.ranks.size,
            )
        self.types = {name: variable.type for name, variable in program.state.items()}
        clears = _tells_addresses()
        self.context: Context = Context(
            program,
            device.lower(),
            self.ranks.rank,
            self.ranks.size,
            seed,
            clears=clears,
            places=_may_place(program, device, live) if beside is None else beside.context.places,
            arenas=Arenas() if beside is None else beside.context.arenas,
        )
        held = [variable for name, variable in program.state.items() if self.holds(name)]
        _refuse_too_large(sum(map(self.context.nbytes, program.state)))
        self.given: dict[str, Any] = {} if live is None else self._given(program, live)
        """Parameters of a live Cell."""
        self._copies: dict[str, Any] = {}
        """Parameters that only graphs as they run have: copies of pieces of weights."""
        self._memories: dict[str, tuple[int, Any]] = {}
        """The memory of states that the host wrote: where it begins, and as an array."""
        self._parts: dict[HostPart, tuple[Sequence[Callable[[], int]], Sequence[int] | None, Mapping[str, Any]]] = {}
        """Of the states that a part needs: what says where each one's memory begins, where it began, and as arrays."""
        self._moves: dict[Pairs, Moves] = {}
        """The averages that the host moved in their memory."""
        self._placing: Placing = Placing() if beside is None else beside._placing
        self._placing.is_handed_out |= live is not None
        self._has_run: set[int] = set()
        """What ran a graph once, by its id."""
        self.parameters: dict[str, Any] = (
            {v.name: self.given[v.name] if v.name in self.given else self._parameter_of(v) for v in held}
            if beside is None
            else beside.parameters
        )
        if live is not None:
            given = (program.state[name] for name in self.given)
            new = {v.name: numbers(v.type, v.data) for v in given if live.has_new_value(v)}
            if new:
                self.write(new)
        for file in {v.data.file for v in program.state.values() if isinstance(v.data, MappedData)}:
            file.release()
        self.draws = Draws(seed or 0, self.ranks.rank)
        self.unrepeatable: list[str] = []
        """Random primitives whose generator MindSpore keeps for itself: a saved state does not say where they stand."""
        if beside is not None:
            shared = (name for name, graph in self.graphs.items() if graph is beside.graphs.get(name))
            for piece in (piece for name in shared for piece in beside._pieces(name)):
                self.draws.take_over(piece, beside.draws)
                if piece in beside.context.cleared:
                    self.context.cleared[piece] = beside.context.cleared[piece]
        known = {} if beside is None else {beside.graphs[n]: runner for n, runner in beside._runners.items()}
        # The last graph of a cycle first: it updates the weights, and what is added up for it stands as they do.
        self._runners: dict[str, Any] = {
            name: known[graph] if graph in known else self._load(graph) for name, graph in reversed(self.graphs.items())
        }
        known = {} if beside is None else {beside.graphs[n]: runner for n, runner in beside._idle.items()}
        self._idle: dict[str, Any] = {
            name: runner
            for name, graph in self.graphs.items()
            if (runner := known[graph] if graph in known else self._load_idle(graph)) is not None
        }
        """What runs in cycles in which nothing is measured, where that is something else."""

    def holds(self, name: str) -> bool:
        """Whether this rank holds a state, or a part of it; another one that owns it may hold it alone."""
        return self.context.holders.get(name, self.ranks.rank) == self.ranks.rank

    def _given(self, program: Program, live: LiveCell) -> dict[str, Any]:
        parts = self.context.shared | self.context.pieces.keys()
        found = {n: live.parameter_of(v) for n, v in program.state.items() if self.holds(n) and n not in parts}
        return {name: parameter for name, parameter in found.items() if parameter is not None}

    def _parameter_of(self, variable: StateVariable) -> Any:
        """The Parameter of a state, or of this rank's share of it. All its bytes are read, so they are checked too."""
        variable.data.check(variable.name)
        parameter = _parameter(self._share_of(variable))
        if isinstance(variable.data, MappedData):
            variable.data.file.release()  # at once: in the end the pages of all states would be there twice
        return parameter

    def _share_of(self, variable: StateVariable) -> StateVariable:
        piece = self.context.pieces.get(variable.name)
        if piece is not None:
            type_ = TensorType(variable.dtype, (piece.stop - piece.start,))
            if isinstance(variable.data, ZeroData):
                return replace(variable, type=type_, data=ZeroData(type_.nbytes))
            begin, end = (place * variable.dtype.itemsize for place in (piece.start, piece.stop))
            return replace(variable, type=type_, data=BytesData(variable.data.view()[begin:end]))
        if variable.name not in self.context.shared:
            return variable
        type_, data = from_numpy(share_of(variable.initial, self.ranks.rank, self.ranks.size))
        return replace(variable, type=type_, data=data)

    def _load(self, graph: Graph) -> Any:
        """What runs a graph of the schedule: a Cell, or one for each piece of it."""
        division = divide(graph, self.context)
        return self._load_whole(graph) if division is None else Divided(division, self._load_whole)

    def _load_whole(self, graph: Graph) -> Any:
        lowered = lower(graph, self.context).graph
        for name, members in self.context.groups.items():
            create_group(name, members)
        for node in self.context.unseeded.get(graph.name, ()):
            log.warning("the session's seed does not reach %s of graph '%s'", node, graph.name)
        self.draws.add(graph.name, self.context.draws.get(graph.name, ()))
        random = [node for node in lowered.all_nodes() if draws(node)]
        self.unrepeatable += [f"{node.op.name} in {node.scope}" for node in random]
        return self._compiled(self.context.program, lowered, self.context.hosted.pop(graph.name, None))

    def _load_idle(self, graph: Graph) -> Any:
        """A Cell that runs a graph without what it measures; None where that is no other graph. Nor may it draw by
        itself: each compiled graph has generators of its own."""
        idle = idle_graph(graph, self.context.program)
        if idle is None:
            return None
        lowered = lower(idle, self.context).graph
        part = self.context.hosted.pop(graph.name, None)
        return None if any(map(draws, lowered.all_nodes())) else self._compiled(self.context.program, lowered, part)

    def hand_out(self) -> list[Any]:
        """The Parameters, for somebody else to read and write, and to give other memory."""
        self._placing.is_handed_out = True
        return list(self.parameters.values())

    def runner_of(self, program: Program, graph: Graph) -> Any:
        """A Cell that runs a graph on this engine's Parameters; ``program``: whose state the graph takes."""
        return self._compiled(program, lower(graph, Context(program, self.context.target), FOR_ANY_GRAPH).graph)

    def _compiled(self, program: Program, graph: Graph, part: HostPart | None = None) -> Any:
        import mindspore

        from ...ir.formats.mindir.writer import write_mindir
        from .cells import FunctionRunner, GraphRunner

        with scratch_folder() as folder:
            path = folder / "program.mindir"
            # MindSpore rejects a file that does not name its version, as of a program that no file was read for.
            header = {"model_version": mindspore.__version__, **program.metadata}
            write_mindir(path, graph, program.state, header, stateless=True)
            try:
                loaded = mindspore.load(str(path))
            except Exception as e:
                raise self._failure(graph, e) from e
        runner = FunctionRunner if as_function(graph, self.device) else GraphRunner
        return runner(loaded, [self._parameter(state) for state in graph.states.values()], part)

    def _parameter(self, state: State) -> Any:
        if state.name in self.parameters:
            return self.parameters[state.name]
        arena = self.context.arenas.by_name.get(state.name)
        if arena is not None:
            return self._placing.whole(arena, self.parameters)
        if state.name not in self._copies:
            type_ = tensor_type(state)
            self._copies[state.name] = _parameter(StateVariable(state.name, type_, ZeroData(type_.nbytes)))
        return self._copies[state.name]

    def run(self, name: str, inputs: tuple[Any, ...], measures: bool = True) -> tuple[Any, ...]:
        """Runs one graph on Tensors and returns its results, which may still be computing, numbers that the host
        computed as :class:`HostNumber`. ``measures``: whether the cycle is one that is measured."""
        runner = self._runners[name] if measures else self._idle.get(name, self._runners[name])
        if isinstance(runner, Divided):
            return runner.run(inputs, self._run, self.look)
        return self._run(self.graphs[name], runner, inputs)

    def _run(self, graph: Graph, runner: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._placing.begin()
        results = self.call(runner, graph, (*inputs, *self.draws.next(graph.name)))
        if id(runner) not in self._has_run:
            self._has_run.add(id(runner))
            self._placing.check()
        if runner.part is not None:
            results = self._finish(runner.part, results)
        if graph.name in self.context.cleared:
            self._clear(self.context.cleared[graph.name])
        return results

    def _pieces(self, name: str) -> list[str]:
        """The names of what runs a graph."""
        runner = self._runners[name]
        return runner.names if isinstance(runner, Divided) else [name]

    def call(self, runner: Any, graph: Graph, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Runs a graph by what :meth:`runner_of` made for it."""
        try:
            result = runner(*inputs)
        except Error:
            raise
        except Exception as e:
            raise self._failure(graph, e) from e
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def read(self, name: str) -> Any:
        """A copy of the value of a state that this rank holds, or of its piece, as numpy array, bfloat16 as float32."""
        import mindspore

        parameter = self.parameters[name]
        if self.types[name].dtype is DType.BFLOAT16:
            return np.array(parameter.astype(mindspore.float32).asnumpy())
        # asnumpy() shares the memory that the next step writes.
        return np.array(parameter.asnumpy())

    def look(self, name: str) -> Any:
        """As :meth:`read`, but not copied where the state's memory is the host's: to be looked at before the next step,
        and not to be written."""
        if self.types[name].dtype is DType.BFLOAT16:
            return self.read(name)
        view = self._memory_of(name) if self.device == "CPU" and self.context.clears else None
        return self.parameters[name].asnumpy() if view is None else view

    def like(self, name: str, piece: slice | None = None) -> Any:
        """An array of the type that :meth:`read` gives for a state or a piece of it, without memory of its own, whoever
        holds it."""
        type_ = self.types[name]
        dtype = "float32" if type_.dtype is DType.BFLOAT16 else type_.dtype.value
        shape = type_.shape if piece is None else (piece.stop - piece.start,)
        return np.broadcast_to(np.zeros((), dtype), shape)

    def tensor(self, name: str, value: Any) -> Any:
        """A value for a state, of its shape and dtype (float32 for bfloat16), as MindSpore holds it."""
        import mindspore

        return mindspore.Tensor(value, mindspore.bfloat16 if self.types[name].dtype is DType.BFLOAT16 else None)

    def write(self, values: Mapping[str, Any]) -> None:
        """Sets values of the state, of its shapes and dtypes (float32 for bfloat16); those that other ranks alone hold
        are left to them."""
        memory = self._memory()
        for name, value in values.items():
            if not self.holds(name):
                continue
            if name in self.context.pieces:
                value = value.reshape(-1)[self.context.pieces[name]]
            if name in memory:
                memory[name][...] = value
            else:
                self._assign(name, value)

    def _memory(self) -> dict[str, Any]:
        """The state's own memory, where the host can write it: an Assign takes some fifty times as long as a copy.

        All of the state is asked for, written or not: that waits for whatever still computes it, or from it."""
        if self.device != "CPU" or not self.context.clears:
            return {}
        found = {name: self._view(name) for name in self.parameters if self.types[name].dtype is not DType.BFLOAT16}
        return {name: view for name, view in found.items() if view is not None}

    def _view(self, name: str) -> Any | None:
        """The memory of a state as an array, on a CPU; None where the host cannot write it."""
        parameter = self.parameters[name]
        view = parameter.asnumpy()
        return view if view.flags.writeable and parameter.data_ptr() == view.ctypes.data else None

    def _memory_of(self, name: str) -> Any | None:
        """As :meth:`_view`. Parameters keep their memory, so where it is found once, its address alone is compared."""
        address, view = self._memories.get(name, (None, None))
        if view is None or address != self.parameters[name].data_ptr():
            view = self._view(name)
            if view is not None:
                self._memories[name] = (view.ctypes.data, view)
        return view

    def _clear(self, names: Sequence[str]) -> None:
        """Writes zeros; a graph on a CPU has been computed when its call returns."""
        for name in self._placing.clear(names):
            view = self._memory_of(name)
            if view is None:
                self._assign(name, self.like(name, self.context.pieces.get(name)))
            else:
                view.fill(0)

    def _finish(self, part: HostPart, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Computes what a graph left to the host, and puts its results beside those of the device."""
        views = self._views_of(part)

        def read(name: str) -> Any:
            return (self.read(name) if (view := views[name]) is None else view).item()

        finished = part.run(results, read)
        if finished.moves:
            with np.errstate(all="ignore"):
                for pairs, kept, taken in finished.moves:
                    self._move(pairs, kept, taken)
        for name, value in finished.written:
            if (view := views[name]) is None:
                self._assign(name, np.full_like(self.like(name), value))
            else:
                view.fill(value)
        own = finished.returned
        return tuple([own[i] if host else results[i] for i, host in part.results])

    def _views_of(self, part: HostPart) -> Mapping[str, Any]:
        """As :meth:`_memory_of`, by name, for all states that a part needs."""
        addresses, begins, views = self._parts.get(part, ((), None, {}))
        if [address() for address in addresses] == begins:
            return views
        views = {name: self._memory_of(name) for name in part.states}
        if all(view is not None for view in views.values()):
            addresses = [self.parameters[name].data_ptr for name in part.states]
            self._parts[part] = addresses, [view.ctypes.data for view in views.values()], views
        return views

    def _move(self, pairs: Pairs, kept: Any, taken: Any) -> None:
        moves = self._moves.get(pairs)
        if moves is None or not moves.stand():
            views = [(self._memory_of(average), self._memory_of(weight)) for average, weight in pairs]
            if any(view is None for pair in views for view in pair):
                self._move_copies(pairs, kept, taken)
                return
            moves = Moves(views, [self.parameters[name].data_ptr for pair in pairs for name in pair])
            self._moves[pairs] = moves
        moves.run(kept, taken)

    def _move_copies(self, pairs: Pairs, kept: Any, taken: Any) -> None:
        """Where the host cannot write the memory."""
        for average, weight in pairs:
            moved = self.read(average)
            Moves([(moved, self.read(weight))]).run(kept, taken)
            self._assign(average, moved)

    def _assign(self, name: str, value: Any) -> None:
        import mindspore
        from mindspore import ops

        parameter, tensor = self.parameters[name], self.tensor(name, value)
        if tensor.dtype == mindspore.bfloat16 and self.device == "CPU":  # has no Assign kernel for bfloat16
            parameter.set_data(tensor)
            return
        # set_data can give the Parameter other memory than the compiled graph writes; assign cannot.
        ops.assign(parameter, tensor)

    def _failure(self, graph: Graph, error: Exception) -> RuntimeFailure:
        text = str(error)
        found = re.search(r"[Uu]nsupported op \[(\w+)\]", text) or re.search(r"Select \w+ operator\[(\w+)\] fail", text)
        if found:
            primitive = found[1]
            return _no_kernel(graph, primitive, self.device)
        return RuntimeFailure(
            f"graph '{graph.name}': MindSpore could not run it on {self.device}: {first_paragraph(text)}"
        )


def _may_place(program: Program, device: str, live: LiveCell | None) -> bool:
    """Whether the Parameters of a program may get other memory. Those of a live Cell with loops may not: where it was
    compiled before, it would not see that."""
    if device != "CPU" or not can_place():
        return False
    return live is None or not any(map(recursive_functions, program.graphs.values()))


def _tells_addresses() -> bool:
    """Whether this MindSpore says where the memory of a Parameter begins."""
    import mindspore

    return hasattr(mindspore.Tensor, "data_ptr")


def _refuse_foreign_code(program: Program) -> None:
    """Files are data: what MindSpore would run because a file names it (an expression, a library) is not started."""
    for graph in program.graphs.values():
        for node in graph.all_nodes():
            if facts(node.op).family is Family.CODE:
                raise RuntimeFailure(
                    f"graph '{graph.name}': primitive {node.op.name} (node %{node.name}, scope {node.scope or 'none'}) "
                    f"runs code that the file names, which a session does not do. Export the network without it."
                )


def _refuse_without_kernel(program: Program, device: str) -> None:
    """Refuses now: a kernel that the device lacks would else show in the graph that runs last, micro-batches later."""
    for name in program.schedule.graphs():
        for node in lacking(program.graphs[name], device.lower()):
            what = described(node, device.lower())
            raise _no_kernel(program.graphs[name], node.op.name, device, what, program.target)
        for node, state in torn(program.graphs[name], device.lower()):
            raise RuntimeFailure(torn_apart(node, state, name))


def _no_kernel(graph: Graph, primitive: str, device: str, what: str = "", target: str = "") -> RuntimeFailure:
    scopes = [n.scope for n in graph.all_nodes() if n.op.name == primitive]
    where = f" ({len(scopes)} uses, the first in {scopes[0]})" if scopes else ""
    found = f"graph '{graph.name}': MindSpore has no {device} kernel for primitive {what or primitive}{where}."
    if target not in ("", device.lower()):
        found += f" The program was compiled for {target}."
    if primitive in ADVICE:  # nothing replaces it
        return RuntimeFailure(f"{found} {ADVICE[primitive]} Or run it on a device that has one.")
    rest = "replaces what it can; else run it on a device that has one, or replace the layer or optimizer it comes from"
    return RuntimeFailure(
        found,
        python=f"bc.compile(program, 'legalize{{target={device.lower()}}}') {rest}.",
        command=f"boost-compile --target {device.lower()} {rest} and export again.",
    )


def _refuse_too_large(needed: int) -> None:
    """A file of a few bytes may declare any amount of state that starts from zero."""
    if not hasattr(os, "sysconf"):  # Windows
        return
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise RuntimeFailure(
            f"the program's state takes {needed / 2**30:,.1f} GB, and this machine has {there / 2**30:,.1f} GB of "
            "memory (boost-inspect --memory shows what takes how much): train a smaller network, or on a larger one."
        )


def _set_device(device: str) -> None:
    choose_device(device)
    import mindspore

    if mindspore.get_context("enable_compile_cache"):
        mindspore.set_context(enable_compile_cache=False)
        log.warning("disabled MindSpore's compile cache: it can return the graph of another program.")


def _parameter(variable: StateVariable) -> Any:
    import mindspore

    # from_numpy shares the (mapped) bytes, Parameter copies them: one copy in all.
    tensor = mindspore.Tensor.from_numpy(numbers(variable.type, variable.data))
    parameter = mindspore.Parameter(tensor, name=variable.name, requires_grad=bool(variable.trainable))
    if variable.dtype is DType.BFLOAT16:
        parameter.set_dtype(mindspore.bfloat16)
    return parameter


def flat_outputs(graph: Graph, results: tuple[Any, ...]) -> Mapping[str, Any]:
    """Results by name, those of nested tuples each for itself."""
    type_ = graph.result.type
    flat = _flat(type_.elements, results) if isinstance(type_, TupleType) and not type_.dynamic else list(results)
    return dict(zip(names_of_results(graph, len(flat)), flat, strict=False))


def _flat(types: Sequence[Type], values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for type_, value in zip(types, values, strict=False):
        if isinstance(type_, TupleType) and not type_.dynamic and isinstance(value, (tuple, list)):
            found.extend(_flat(type_.elements, value))
        else:
            found.append(value)
    return found
