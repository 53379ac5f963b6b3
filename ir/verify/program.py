"""Rules of a program beside its graphs: state, names of outputs, schedule."""

from __future__ import annotations

from ..core.graph import Graph
from ..core.program import ROLES, Program
from ..core.types import DType, leaves
from ..core.wording import counted
from .problems import Problems, Rank, short


def check_outputs(graph: Graph, problems: Problems) -> None:
    """Names of inputs are unique; names of outputs, where given, are as many as the values returned."""
    taken = set(graph.states)
    for value in graph.inputs:
        if value.name in taken:
            problems.add(
                Rank.PROGRAM, graph, None, f"two of its inputs and states are named '{value.name}'", "rename the input"
            )
        taken.add(value.name)
    if not graph.outputs or not graph.has_result:
        return
    type_ = graph.result.type
    count = len(leaves(type_))
    if len(graph.outputs) != count:
        problems.add(
            Rank.PROGRAM, graph, None,
            f"it names {counted(len(graph.outputs), 'output')} ({', '.join(graph.outputs)}), "
            f"but its result, of type {short(type_)}, holds {count}",
            "set graph.outputs to one name for each value returned",
        )  # fmt: skip


def check_states(graph: Graph, program: Program, problems: Problems) -> None:
    """The graph's states are the program's, of the same type."""
    for part in graph.all_graphs():
        for name, value in part.states.items():
            variable = program.state.get(name)
            if value.name != name:
                what = f"its state '{name}' calls itself '{value.name}'"
                problems.add(Rank.PROGRAM, part, None, what, "make it with graph.state")
            elif variable is None:
                problems.add(
                    Rank.PROGRAM, part, None, f"it uses state '{name}', which the program does not have",
                    "declare it with program.add_state",
                )  # fmt: skip
            elif variable.type is not value.type and (variable.type.dtype, variable.type.shape) != (
                getattr(value.type, "dtype", None),
                getattr(value.type, "shape", None),
            ):
                problems.add(
                    Rank.PROGRAM, part, None,
                    f"it takes state '{name}' for {value.type}, but the program has {variable.type}",
                    "use one type for both",
                )  # fmt: skip


def check_program(program: Program, problems: Problems) -> None:
    report = problems.of_program
    sizes: dict[int, int | None] = {}  # in bytes, by the types' ids: many states share one; None if it is not fixed
    for name, variable in program.state.items():
        if variable.name != name:
            report(f"state '{variable.name}' stands under the name '{name}'", "declare state with program.add_state")
        type_ = variable.type
        if id(type_) not in sizes:
            sizes[id(type_)] = type_.nbytes if type_.is_static else None
        nbytes = sizes[id(type_)]
        if nbytes is None:
            report(f"state '{name}' is of type {type_}", "state has fixed dimensions")
        elif variable.data.nbytes != nbytes and variable.dtype is not DType.STRING:
            report(
                f"state '{name}' is {type_}, {nbytes} bytes, but its initial value has {variable.data.nbytes}",
                "give it data of that size",
            )
        if variable.role not in ROLES:
            report(f"state '{name}' has the role '{variable.role}'", f"roles are {', '.join(ROLES)}")
    _check_schedule(program, problems)


def _check_schedule(program: Program, problems: Problems) -> None:
    report = problems.of_program
    schedule = program.schedule
    if not schedule.cycle:
        report("the schedule is empty", "a cycle runs at least one graph")
    for entry in schedule.cycle:
        if entry.repeat < 1:
            report(f"the schedule runs graph '{entry.graph}' {entry.repeat} times", "repeats are 1 or more")
    if schedule.num_variants > max(len(program.graphs), 1):
        variants = counted(schedule.num_variants, "variant")
        report(f"the schedule chooses among {variants}", "there are not as many graphs")
        return
    missing = [name for name in schedule.graphs() if name not in program.graphs]
    for name in missing:
        report(f"the schedule names graph '{name}', which the program does not have", "name one of its graphs")
    fed: dict[str, list[tuple[str, object]]] = {}
    trial = "" if schedule.search is None else schedule.search.trial
    for name in schedule.graphs():
        graph = program.graphs.get(name) if name != trial else None
        if graph is not None and graph.inputs:
            fed[name] = [(v.name, v.type) for v in graph.inputs]
    first = next(iter(fed), "")
    for name, inputs in fed.items():
        if inputs != fed[first]:
            report(
                f"graphs '{first}' and '{name}' of the schedule take different inputs: "
                f"{_shown(fed[first])} and {_shown(inputs)}",
                "every graph that takes a micro-batch takes the same inputs, in the same order",
            )
    if schedule.flush in fed:
        report(
            f"graph '{schedule.flush}', which ends a short window, takes inputs", "a flush has no micro-batch to give"
        )
    if schedule.max_skipped is not None and schedule.max_skipped < 1:
        allowed = counted(schedule.max_skipped, "skipped cycle")
        report(f"the schedule allows {allowed}", "allow at least 1, or leave the limit out")
    _check_search(program, problems)
    if schedule.choice is not None:
        counter = program.state.get(schedule.choice.state)
        if counter is None or counter.type.size != 1:
            report(f"the schedule counts cycles in state '{schedule.choice.state}', which is no number", "declare it")
    if schedule.count is not None:
        counter = program.state.get(schedule.count)
        if counter is None:
            report(f"the schedule counts in state '{schedule.count}', which the program does not have", "declare it")
        elif counter.type.size != 1 or counter.dtype not in (DType.INT32, DType.INT64, DType.FLOAT32):
            report(f"the schedule counts in state '{schedule.count}', which is {counter.type}", "a count is one number")


def _check_search(program: Program, problems: Problems) -> None:
    report = problems.of_program
    search = program.schedule.search
    if search is None:
        return
    pending = program.state.get(search.pending)
    if pending is None or pending.type.size != 1:
        report(f"the search goes on while state '{search.pending}' says so, which is no number", "declare it")
    if search.at_most < 1:
        report(f"the search has at most {counted(search.at_most, 'trial')}", "allow at least 1")
    judge, trial = program.graphs.get(search.judge), program.graphs.get(search.trial)
    if judge is not None and judge.inputs:
        report(f"graph '{search.judge}', which judges a trial, takes inputs", "it runs once for a whole cycle")
    for name in {e.graph for e in program.schedule.cycle}:
        graph = program.graphs.get(name)
        if graph is None or trial is None or not graph.inputs:
            continue
        lacking = [k for k in search.kept if k not in graph.outputs]
        if lacking:
            report(f"graph '{name}' does not return '{lacking[0]}', which a trial takes", "return it")
        if len(trial.inputs) != len(graph.inputs) + len(search.kept):
            report(
                f"graph '{search.trial}' takes {counted(len(trial.inputs), 'input')}, and is given "
                f"{len(graph.inputs)} and {counted(len(search.kept), 'kept output')} of graph '{name}'",
                "a trial takes the inputs of a micro-batch, then what was kept of it",
            )


def _shown(inputs: list[tuple[str, object]]) -> str:
    return "(" + ", ".join(f"%{name}: {type_}" for name, type_ in inputs) + ")"
