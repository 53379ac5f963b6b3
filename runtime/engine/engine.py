"""A program on MindSpore: its state as Parameters, its graphs as Cells that update them in place."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...ir.analysis.training.results import names_of_results
from ...ir.core.data import BytesData, MappedData, ZeroData, from_numpy, numbers
from ...ir.core.errors import Error, RuntimeFailure
from ...ir.core.graph import Graph, State, tensor_type
from ...ir.core.predicates import draws
from ...ir.core.program import Program, StateVariable
from ...ir.core.types import DType, TensorType, TupleType, Type
from ...ir.core.wording import sentence
from ...ir.rewrite.ranks.collectives import collectives
from ...ir.rewrite.ranks.shares import share_of
from ..lowering.context import Context
from ..lowering.idle import idle_graph
from ..lowering.lower import FOR_ANY_GRAPH, lower
from .device import choose_device, first_paragraph, named_device
from .dispatch import as_function
from .draws import Draws
from .environment import prepare_environment
from .live import LiveCell
from .one_thread import another_thread, enter, leave
from .ranks import Ranks, create_group, join_ranks
from .refusals import no_kernel, refuse_foreign_code, refuse_too_large, refuse_without_kernel
from .scratch import scratch_folder
from .state_memory import StateMemory

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
        refuse_foreign_code(program)
        device = named_device(device)
        refuse_without_kernel(program, device)
        self.graphs: dict[str, Graph] = {name: program.graphs[name] for name in program.schedule.graphs()}
        prepare_environment(self.graphs.values() if device == "CPU" else ())
        _set_device(device)
        self.device = device
        self.ranks = join_ranks()
        _warn_of_ranks_apart(self.ranks, self.graphs.values())
        self.types = {name: variable.type for name, variable in program.state.items()}
        self.context: Context = Context(
            program,
            device.lower(),
            self.ranks.rank,
            self.ranks.size,
            seed,
        )
        refuse_too_large(sum(map(self.context.nbytes, program.state)))
        self.given: dict[str, Any] = {} if live is None else self._given(program, live)
        """Parameters of a live Cell."""
        self._copies: dict[str, Any] = {}
        """Parameters that only graphs as they run have: copies of pieces of weights."""
        self.parameters: dict[str, Any] = self._made(program) if beside is None else beside.parameters
        self.memory = StateMemory(self.parameters, self.types, self.context)
        if live is not None:
            self._take_new_values(program, live)
        for file in {v.data.file for v in program.state.values() if isinstance(v.data, MappedData)}:
            file.release()
        self.draws = Draws(seed or 0, self.ranks.rank)
        self.unrepeatable: list[str] = []
        """Random primitives whose generator MindSpore keeps for itself: a saved state does not say where they stand."""
        known, known_idle = ({}, {}) if beside is None else self._shared_with(beside)
        self._runners: dict[str, Any] = {
            name: known[name] if name in known else self._load(graph) for name, graph in self.graphs.items()
        }
        idle = {n: known_idle[n] if n in known_idle else self._load_idle(graph) for n, graph in self.graphs.items()}
        self._idle: dict[str, Any] = {name: runner for name, runner in idle.items() if runner is not None}
        """What runs in cycles in which nothing is measured, where that is something else."""

    def _made(self, program: Program) -> dict[str, Any]:
        """The Parameters of the states that this rank holds."""
        held = (variable for name, variable in program.state.items() if self.context.holds(name))
        return {v.name: self.given[v.name] if v.name in self.given else self._parameter_of(v) for v in held}

    def _take_new_values(self, program: Program, live: LiveCell) -> None:
        given = (program.state[name] for name in self.given)
        new = {v.name: numbers(v.type, v.data) for v in given if live.has_new_value(v)}
        if new:
            self.memory.write(new)

    def _shared_with(self, beside: Engine) -> tuple[dict[str, Any], dict[str, Any]]:
        """What runs the graphs that both engines have, by name, always and where nothing is measured; the random
        numbers that are next come along."""
        shared = [name for name, graph in self.graphs.items() if graph is beside.graphs.get(name)]
        for name in shared:
            self.draws.take_over(name, beside.draws)
            if name in beside.context.cleared:
                self.context.cleared[name] = beside.context.cleared[name]
        runners = {name: beside._runners[name] for name in shared}
        return runners, {name: beside._idle[name] for name in shared if name in beside._idle}

    def _given(self, program: Program, live: LiveCell) -> dict[str, Any]:
        parts = self.context.shared | self.context.pieces.keys()
        found = {n: live.parameter_of(v) for n, v in program.state.items() if self.context.holds(n) and n not in parts}
        return {name: parameter for name, parameter in found.items() if parameter is not None}

    def _parameter_of(self, variable: StateVariable) -> Any:
        """The Parameter of a state, or of this rank's share of it. All its bytes are read, so they are checked too."""
        variable.data.check(variable.name)
        parameter = new_parameter(self._share_of(variable))
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
        """A Cell that runs a graph of the schedule."""
        lowered = lower(graph, self.context).graph
        for name, members in self.context.groups.items():
            create_group(name, members)
        for node in self.context.unseeded.get(graph.name, ()):
            log.warning("the session's seed does not reach %s of graph '%s'", node, graph.name)
        self.draws.add(graph.name, self.context.draws.get(graph.name, ()))
        random = [node for node in lowered.all_nodes() if draws(node)]
        self.unrepeatable += [f"{node.op.name} in {node.scope}" for node in random]
        return self._compiled(self.context.program, lowered)

    def _load_idle(self, graph: Graph) -> Any:
        """A Cell that runs a graph without what it measures; None where that is no other graph. Nor may it draw by
        itself: each compiled graph has generators of its own."""
        idle = idle_graph(graph, self.context.program)
        if idle is None:
            return None
        lowered = lower(idle, self.context).graph
        return None if any(map(draws, lowered.all_nodes())) else self._compiled(self.context.program, lowered)

    def runner_of(self, program: Program, graph: Graph) -> Any:
        """A Cell that runs a graph on this engine's Parameters; ``program``: whose state the graph takes."""
        return self._compiled(program, lower(graph, Context(program, self.context.target), FOR_ANY_GRAPH).graph)

    def _compiled(self, program: Program, graph: Graph) -> Any:
        import mindspore

        from ...ir.formats.mindir.writer import write_mindir
        from .cells import FunctionRunner, GraphRunner

        with scratch_folder() as folder:
            path = folder / "program.mindir"
            # MindSpore rejects a file that does not name its version, as of a program that no file was read for.
            header = {"model_version": mindspore.__version__, **program.metadata}
            write_mindir(path, graph, program.state, header, stateless=True)
            if not enter(False):
                raise another_thread()
            try:
                loaded = mindspore.load(str(path))
            except Exception as e:
                raise self._failure(graph, e) from e
            finally:
                leave()
        runner = FunctionRunner if as_function(graph, self.device) else GraphRunner
        return runner(loaded, [self._parameter(state) for state in graph.states.values()])

    def _parameter(self, state: State) -> Any:
        if state.name in self.parameters:
            return self.parameters[state.name]
        if state.name not in self._copies:
            type_ = tensor_type(state)
            self._copies[state.name] = new_parameter(StateVariable(state.name, type_, ZeroData(type_.nbytes)))
        return self._copies[state.name]

    def run(self, name: str, inputs: tuple[Any, ...], measures: bool = True) -> tuple[Any, ...]:
        """Runs one graph on Tensors and returns its results, which may still be computing. ``measures``: whether the
        cycle is one that is measured."""
        runner = self._runners[name] if measures else self._idle.get(name, self._runners[name])
        results = self.call(runner, self.graphs[name], (*inputs, *self.draws.next(name)))
        if name in self.context.cleared:
            self.memory.clear(self.context.cleared[name])
        return results

    def call(self, runner: Any, graph: Graph, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Runs a graph by what :meth:`runner_of` made for it."""
        if not enter(False):
            raise another_thread()
        try:
            result = runner(*inputs)
        except Error:
            raise
        except Exception as e:
            raise self._failure(graph, e) from e
        finally:
            leave()
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def _failure(self, graph: Graph, error: Exception) -> RuntimeFailure:
        text = str(error)
        found = re.search(r"[Uu]nsupported op \[(\w+)\]", text) or re.search(r"Select \w+ operator\[(\w+)\] fail", text)
        if found:
            primitive = found[1]
            return no_kernel(graph, primitive, self.device)
        if "previous step of this model execution" in text:
            return RuntimeFailure(
                f"graph '{graph.name}' runs no more: an earlier run of it failed, and MindSpore gives up such a graph. "
                f"The state may hold a part of that run, such as the statistics of a BatchNorm.",
                python="Make a new bc.Session of the program, load the state that was saved last (session.load), and "
                "feed the window that was running anew.",
                command="boost-run --resume goes on from the state that was saved last.",
            )
        said = f"graph '{graph.name}': MindSpore could not run it on {self.device}: {first_paragraph(text)}"
        if OUT_OF_RANGE.search(text):
            return RuntimeFailure(sentence(said), command=FIND_LABELS)
        return RuntimeFailure(said)


OUT_OF_RANGE = re.compile(r"error label|[Oo]ut of range|'index' must be in")
FIND_LABELS = "If labels or numbers of rows are wrong, boost-inspect PROGRAM --doctor --data FILE.npz names them."


def _warn_of_ranks_apart(ranks: Ranks, graphs: Iterable[Graph]) -> None:
    if ranks.size > 1 and not any(True for graph in graphs for _ in collectives(graph)):
        log.warning(
            "rank %d of %d trains by itself: the program exchanges nothing (compile it with data-parallel)",
            ranks.rank,
            ranks.size,
        )


def _set_device(device: str) -> None:
    choose_device(device)
    import mindspore

    if mindspore.get_context("enable_compile_cache"):
        mindspore.set_context(enable_compile_cache=False)
        log.warning("disabled MindSpore's compile cache: it can return the graph of another program.")


def new_parameter(variable: StateVariable) -> Any:
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
