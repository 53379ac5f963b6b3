"""Text to graphs and programs: recursive descent, one statement a line. The inverse of :mod:`.printer`.

What hand-written text may leave out: the program header (the schedule is then the first graph), the data of state
(zeros), a node's type where :mod:`..core.inference` has a rule, ``const`` lines (a literal may stand as an operand),
``state`` lines of state that the program declares.
"""

from __future__ import annotations

import re

from ..core.data import Data
from ..core.errors import VerifyError, nearest
from ..core.graph import Graph
from ..core.line_search import Search
from ..core.program import ROLES, Entry, Program, Schedule, StateVariable
from ..core.variants import KINDS, LISTED, Choice
from ..core.wording import counted
from .graph_parser import GraphParser

_FRACTION = re.compile(r"[01](\.\d+)?(e-?\d+)?")
_RESOURCES = re.compile(r"^resources\s*\{", re.MULTILINE)


def parse_program(text: str, source: str = "text") -> Program:
    """The program that ``text`` spells. ``source`` names it in errors (:class:`FormatError`, with line and column)."""
    return _Parser(text, source).program()


def parse_graph(text: str, source: str = "text") -> Graph:
    """One graph that stands alone: a text with a single ``graph`` and no program around it."""
    parser = _Parser(text, source)
    graph = parser.graph()
    parser.finish()
    return graph


class _Parser(GraphParser):
    def __init__(self, text: str, source: str):
        super().__init__(text, source)
        self.end = len(text)
        sections = list(_RESOURCES.finditer(text))
        if sections:
            self.end = sections[-1].start()
            self.pos = self.load_resources(self.end)
            if not self.at_end():
                raise self.error(f"expected the end of the text after the resource section, found {self.found()}")
            self.pos = 0

    def finish(self) -> None:
        self.skip()
        if self.pos < self.end:
            raise self.error(f"expected the end of the text, found {self.found()}")

    def program(self) -> Program:
        program = Program({}, self.state, Schedule(()))
        schedule_at = -1
        if self.accept_word("program"):
            schedule_at = self.header(program)
        while self.peek_word() == "state":
            self.variable()
        while self.peek_word() == "graph":
            at = self.pos
            graph = self.graph()
            if graph.name in program.graphs:
                raise self.error(f"graph @{graph.name} is defined twice", at)
            program.graphs[graph.name] = graph
        if not program.graphs:
            raise self.error(f"expected 'program', 'state' or 'graph', found {self.found()}")
        if self.peek_word() == "state":
            raise self.error("state declarations stand before the graphs")
        self.finish()
        if program.schedule.num_variants > len(program.graphs):
            raise self.error(
                f"a choice of {counted(program.schedule.num_variants, 'variant')} needs as many graphs", schedule_at
            )
        if not program.schedule.cycle and schedule_at < 0:
            program.schedule = Schedule((Entry(next(iter(program.graphs))),))
        return program

    def header(self, program: Program) -> int:
        schedule_at = -1
        if self.accept("@"):
            program.name = self.name("the program's name")
        self.expect("{", "after the program's name")
        while not self.accept("}"):
            at = self.pos
            word = self.name("target, pipeline, schedule, metadata, source or '}'")
            if word == "target":
                program.target = self.name("a target (cpu, gpu, ascend)")
            elif word == "pipeline":
                program.pipeline = self.string()
            elif word == "schedule":
                schedule_at = at
                program.schedule = self.schedule()
            elif word == "metadata":
                program.metadata = self.mapping()
            elif word == "source":
                program.source = self.mapping()
            else:
                known = ["target", "pipeline", "schedule", "metadata", "source"]
                raise self.error(f"no such line in a program's header: '{word}'{nearest(word, known)}", at)
        return schedule_at

    def schedule(self) -> Schedule:
        entries = []
        while self.accept("@"):
            graph, repeat = self.name("a graph's name"), 1
            if self.accept("*"):
                repeat = self.integer()
            entries.append(Entry(graph, repeat))
            if not self.accept(","):
                break
        flush = count = limit = choice = search = None
        while self.accept(";"):
            if self.accept_word("flush"):
                flush = self.marked_name("@", "a graph's name")
            elif self.accept_word("count"):
                count = self.marked_name("%", "a state's name")
            elif self.accept_word("max_skipped"):
                limit = self.integer()
            elif self.accept_word("choice"):
                choice = self.choice()
            elif self.accept_word("search"):
                search = self.search()
            else:
                raise self.error(
                    "expected 'flush @graph', 'count %state', 'max_skipped number', 'choice …' or 'search …', "
                    f"found {self.found()}"
                )
        return Schedule(tuple(entries), flush, count, limit, choice, search)

    def search(self) -> Search:
        """``search @trial @judge %pending at_most %kept…``."""
        trial, judge = (self.marked_name("@", "a graph's name") for _ in range(2))
        pending, at_most = self.marked_name("%", "a state's name"), self.integer()
        kept = []
        while self.accept("%"):
            kept.append(self.name("an output's name"))
        return Search(trial, judge, pending, at_most, tuple(kept))

    def choice(self) -> Choice:
        """``choice variants kind probability cycles seed [repeat] %state``; ``choice variants listed 0, 1, … [repeat]
        %state``."""
        variants = self.integer()
        kind = self.name("a kind of choice")
        if kind not in KINDS:
            raise self.error(f"no such kind of choice: '{kind}'{nearest(kind, list(KINDS))}")
        share, cycles, seed, sequence = 0.0, 0, 0, []
        if kind == LISTED:
            sequence.append(self.integer())
            while self.accept(","):
                sequence.append(self.integer())
            cycles = len(sequence)
        else:
            probability = self.match(_FRACTION)
            if probability is None:
                raise self.error(f"expected a probability, found {self.found()}")
            share, cycles, seed = float(probability.group()), self.integer(), self.integer()
        repeat = self.accept_word("repeat")
        state = self.marked_name("%", "a state's name")
        try:
            return Choice(variants, kind, share, cycles, seed, state, tuple(sequence), repeat)
        except VerifyError as error:
            raise self.error(str(error)) from None

    def variable(self) -> None:
        """``state %name: type<data> role=… trainable=… weight=… info {…}``."""
        self.accept_word("state")
        at = self.pos
        name = self.marked_name("%", "a state's name")
        if name in self.state:
            raise self.error(f"state %{name} is declared twice", at)
        type_ = self.state_type(name)
        data: Data = self.data(type_) if self.accept("<") else self.zeros(type_.nbytes, at)
        variable = self.state[name] = StateVariable(name, type_, data)
        while (word := self.peek_word()) in ("role", "trainable", "weight", "info"):
            at = self.pos
            self.pos += len(word)
            if word == "info":
                variable.info = self.mapping()
                continue
            self.expect("=", f"after '{word}'")
            if word == "role":
                variable.role = self.name("a role")
                if variable.role not in ROLES:
                    raise self.error(f"no such role: '{variable.role}'{nearest(variable.role, list(ROLES))}", at)
            elif word == "weight":
                variable.weight = self.marked_name("%", "a weight's name")
            else:
                variable.trainable = self.truth()
                if variable.trainable is None:
                    raise self.error(f"expected true or false, found {self.found()}")
        self.end_of_line()
