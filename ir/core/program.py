"""A program: named graphs, the state they share, and the schedule that says which graph runs when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, SupportsIndex

from .data import Data, MappedFile, ZeroData, from_numpy, to_numpy
from .display import Displayed
from .errors import OptionError, VerifyError
from .graph import Graph, Node
from .line_search import Search
from .naming import printable
from .report import PassResult
from .saving import save
from .types import DType, TensorType
from .variants import Choice
from .wording import counted, print_bytes

ROLES = (
    "weight", "slot", "statistic", "hyperparameter", "accumulator", "counter", "carried", "loss-scale", "average",
    "monitor", "fixed", "unknown",
)  # fmt: skip
"""``carried``: a value that one graph of a cycle leaves for another, meaningless between cycles. ``loss-scale``: the
factor on the loss, and what decides when it changes. ``average``: the mean of a weight over its updates, and what
decides how it moves. ``monitor``: what was measured, which nothing else takes. ``fixed``: part of the program, which no
graph writes and no checkpoint holds."""
TARGETS = ("cpu", "gpu", "ascend")
CYCLE_ROLES = frozenset({"accumulator", "counter", "carried", "loss-scale", "monitor"})
"""State of the cycle itself, written whether the weights are updated or not."""


@dataclass(slots=True)
class StateVariable:
    """Something that lives across steps. ``role`` is one of :data:`ROLES`; ``weight`` names the weight that a slot or
    an accumulator serves."""

    name: str
    type: TensorType
    data: Data
    role: str = "unknown"
    trainable: bool | None = None
    info: dict[str, Any] = field(default_factory=dict)
    """The file's notes about the parameter, carried through."""
    weight: str = ""

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def initial(self) -> Any:
        """The initial value as a read-only numpy array over the mapped bytes (bfloat16 as uint16 bit patterns)."""
        return to_numpy(self.type, self.data)

    @property
    def nbytes(self) -> int:
        return self.type.nbytes

    def twin(self) -> StateVariable:
        """The same, with notes of its own; the bytes are shared."""
        info = dict(self.info)
        return StateVariable(self.name, self.type, self.data, self.role, self.trainable, info, self.weight)


@dataclass(frozen=True, slots=True)
class Entry:
    """``repeat`` runs of one graph. A graph without inputs consumes no micro-batch."""

    graph: str
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """``cycle`` is the entries of one optimizer step, in order. ``flush`` is the graph that ends a short cycle
    (None: a cycle is one micro-batch, there is nothing to flush). ``count`` names the state that counts the
    micro-batches of the running cycle (so that it survives a checkpoint), reset by the graph that updates.
    ``max_skipped``: training ends with an error after so many cycles in a row whose update was skipped, as the output
    ``skipped_cycles`` of the updating graph says (None: never). ``choice``: which variant of these graphs a cycle runs
    (None: there is one). ``search``: what runs after the updating graph of each cycle (None: nothing)."""

    cycle: tuple[Entry, ...]
    flush: str | None = None
    count: str | None = None
    max_skipped: int | None = None
    choice: Choice | None = None
    search: Search | None = None

    def graphs(self) -> tuple[str, ...]:
        """Names of all graphs that may run, those of variants last."""
        names = [e.graph for e in self.cycle] + ([self.flush] if self.flush else [])
        names += [self.search.trial, self.search.judge] if self.search else []
        base = tuple(dict.fromkeys(names))
        return base + tuple(variant_name(g, k) for k in range(1, self.num_variants) for g in base)

    @property
    def num_variants(self) -> int:
        return 1 if self.choice is None else self.choice.variants

    def variant(self, k: int) -> Schedule:
        """The schedule of the cycles that run variant ``k``."""
        cycle = tuple(Entry(variant_name(e.graph, k), e.repeat) for e in self.cycle)
        flush = None if self.flush is None else variant_name(self.flush, k)
        return Schedule(cycle, flush, self.count, self.max_skipped)

    def __str__(self) -> str:
        text = ", ".join(e.graph if e.repeat == 1 else f"{e.graph} x {e.repeat}" for e in self.cycle)
        text += f" (flush: {self.flush})" if self.flush else ""
        text += f"; {self.choice}" if self.choice else ""
        return text + (f"; {self.search}" if self.search else "")


def variant_name(graph: str, k: int) -> str:
    """The name of a graph's variant; the graph itself is variant 0."""
    return f"{graph}.{k}" if k else graph


_SHOWN = 6
"""How many graphs ``repr`` names."""


class Live(Protocol):
    """The live Cell of a program, as far as passes ask for it."""

    def exported_at(self, size: int, axes: Mapping[str, int]) -> Program:
        """The program as captured, for another batch: ``size`` samples on this axis of each input, by name."""


@dataclass(repr=False)
class Program(Displayed):
    """``graphs`` by name (a file that was just read has one, ``step``); ``state`` by the names users know.

    ``metadata`` holds the source file's header fields; ``source`` says which file (name and sha256) it came from.
    ``pipeline`` is the text of the passes applied so far, ``reports`` their results in order.
    """

    graphs: dict[str, Graph]
    state: dict[str, StateVariable]
    schedule: Schedule
    name: str = "program"
    target: str = "cpu"
    metadata: dict[str, Any] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    pipeline: str = ""
    reports: list[PassResult] = field(default_factory=list)
    live: Live | None = field(default=None, repr=False, compare=False)
    """The live Cell that the program was captured from, which the runtime knows (``runtime/engine/live.py``); None for
    a program from a file. Not saved."""
    file: MappedFile | None = field(default=None, repr=False, compare=False)
    """The MindIR that the program was read from; None for what was made or saved by boost-compile. Not saved."""

    @property
    def state_bytes(self) -> int:
        return sum(variable.nbytes for variable in self.state.values())

    def __repr__(self) -> str:
        by = f", made by {', '.join(r.name for r in self.reports)}" if self.reports else ""
        roles = Counter(v.role for v in self.state.values())
        size = print_bytes(self.state_bytes)
        lines = [f"Program '{self.name}' for {self.target}{by}"]
        lines += map(repr, list(self.graphs.values())[:_SHOWN])
        if len(self.graphs) > _SHOWN:
            lines.append(f"… and {counted(len(self.graphs) - _SHOWN, 'more graph')}")
        lines.append(f"Schedule: {self.schedule}")
        if roles:
            kinds = ", ".join(f"{role} {n}" for role, n in roles.most_common())
            lines.append(f"State: {size} in {counted(len(self.state), 'variable')} ({kinds})")
        return "\n  ".join(map(printable, lines))

    def all_nodes(self) -> Iterator[Node]:
        """The nodes of all graphs and their functions."""
        for graph in self.graphs.values():
            yield from graph.all_nodes()

    def total_nodes(self) -> int:
        """How many nodes all graphs and their functions have."""
        return sum(graph.total_nodes() for graph in self.graphs.values())

    def micro_batches(self) -> int:
        """The number of micro-batches that one cycle consumes."""
        return sum(e.repeat for e in self.schedule.cycle if self.consumes(e.graph))

    def consumes(self, graph: str) -> bool:
        """Whether a run of a graph consumes a micro-batch. Where no graph takes inputs, the cell makes its data itself:
        then each does but that which ends a cycle."""
        if any(g.inputs for g in self.graphs.values()):
            return bool(self.graphs[graph].inputs)
        return self.schedule.flush is None or graph.partition(".")[0] != self.schedule.flush

    def copy(self) -> Program:
        """Graphs and records copied, state bytes shared."""
        return replace(
            self,
            graphs={name: graph.clone()[0] for name, graph in self.graphs.items()},
            state={name: variable.twin() for name, variable in self.state.items()},
            metadata=dict(self.metadata),
            source=dict(self.source),
            reports=list(self.reports),
        )

    def __copy__(self) -> Program:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Program:
        return self.copy()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise OptionError(
            "programs cannot be pickled.", python="program.save(path) writes one, and bc.load(path) reads it."
        )

    def add_state(
        self, name: str, type: TensorType, role: str, data: Data | None = None, weight: str = ""
    ) -> StateVariable:
        """New state, zero unless ``data`` is given. The name must be free."""
        if name in self.state:
            raise VerifyError(f"state '{name}' exists already")
        if role not in ROLES:
            raise VerifyError(f"state '{name}': no such role '{role}'")
        variable = StateVariable(name, type, ZeroData(type.nbytes) if data is None else data, role, weight=weight)
        self.state[name] = variable
        return variable

    def with_values(self, values: Mapping[str, Any]) -> Program:
        """A copy whose named state starts from the given arrays (same shape and type)."""
        copy = self.copy()
        for name, array in values.items():
            if name not in copy.state:
                raise VerifyError(f"no state named '{name}'")
            type_, data = from_numpy(array)
            old = copy.state[name].type
            if (type_.dtype, type_.shape) != (old.dtype, old.shape):
                raise VerifyError(f"state '{name}' is {old}, the given array is {type_}")
            copy.state[name].data = data
        return copy

    def used_state(self) -> set[str]:
        """The names of the state that some graph uses."""
        return {name for graph in self.graphs.values() for name in graph.states}

    def drop_state(self, names: Iterable[str]) -> list[str]:
        """Drops those of ``names`` that no graph uses any more, and returns them. A pass calls it for state that it has
        made useless. State that the file brought and no graph ever used stays, since checkpoints of the native network
        hold it.
        """
        used = self.used_state()
        gone = [name for name in names if name in self.state and name not in used]
        for name in gone:
            del self.state[name]
        return gone

    def save(self, path: str) -> None:
        """``NAME.mindir`` writes one self-contained MindIR, ``NAME.txt`` the text form, anything else a program
        directory."""
        save(self, path)
