"""Programs on disk: a directory ``NAME.boost``, one self-contained MindIR, or the text form.

A directory holds ``program.json`` (what runs when, on which state, and how it came about), one stateless MindIR a
graph, whose last inputs are its states, and ``state.safetensors``, written once and shared by the graphs. Writing is
atomic. ``program.json`` notes a checksum of each file and tensor, and at its end one of itself. All are compared when a
directory is read but those of the tensors, which stay on disk until they are needed: those when a session or another
file takes the values, and by :func:`check_state`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.data import Data, MappedData, MappedFile, ZeroData
from ...core.errors import Error, FormatError, OptionError, VerifyError
from ...core.graph import Origin
from ...core.line_search import Search
from ...core.naming import printable
from ...core.program import ROLES, Entry, Program, Schedule, StateVariable
from ...core.report import Miss, PassResult
from ...core.types import MAX_RANK, DType, TensorType
from ...core.variants import KINDS, Choice
from ...core.wording import counted
from ...files.atomic import explained, replacing_directory, replacing_file, unfinished
from ...files.checksums import check_seal, checksum_of_file, noted, sealed, shown
from ...files.document import Document
from .compiled import note_compiled, recognise
from .suffixes import TEXT_SUFFIXES, form_of

if TYPE_CHECKING:
    from ...core.graph import Graph

FORMAT = 1
PROGRAM, STATE = "program.json", "state.safetensors"
TARGETS = ("cpu", "gpu", "ascend")


def load(path: str | os.PathLike[str], dimensions: Mapping[str, int] | None = None) -> Program:
    """Reads a program directory, a ``.mindir`` file, an ``.onnx`` model or the text form (``.ir``, ``.txt``); state
    stays mapped from the file. ``dimensions``: sizes of what an ONNX model leaves open.

    Raises FormatError, naming path and place, for anything that is missing, damaged or of another kind.
    """
    path = Path(path)
    if path.is_dir():
        refuse_dimensions(dimensions, f"{path} is a program, whose sizes are set")
        return _load_directory(path)
    _check_unfinished(path)
    if path.suffix != ".onnx":
        refuse_dimensions(dimensions, f"{path} is no ONNX model")
    if path.suffix in TEXT_SUFFIXES and path.is_file():
        from ...text import parse_program

        try:
            return parse_program(path.read_text(encoding="utf-8"), str(path))
        except UnicodeDecodeError:
            raise FormatError(f"{path}: not the text form of a program: it is not UTF-8") from None
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    if path.suffix == ".onnx":
        from ..onnx.reader import read_onnx

        return read_onnx(path, dimensions)
    from ..mindir.reader import read_mindir

    program = read_mindir(path)
    try:
        return recognise(program)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def refuse_dimensions(dimensions: Mapping[str, int] | None, why: str) -> None:
    """OptionError where sizes are given for what leaves none open."""
    if dimensions:
        raise OptionError(
            f"{why}: sizes can be given for what an ONNX model leaves open.",
            python="Leave dimensions out; pass batch-size changes the batch of a training graph",
            command="boost-compile --dim is for those alone; pass batch-size changes the batch of a training graph",
        )


def _check_unfinished(path: Path) -> None:
    left = unfinished(path)
    if left is not None:
        raise FormatError(
            f"{path}: a process was stopped while it replaced this; what stood here is whole, as '{left}'. "
            f"Rename it to '{path.name}', or write {path.name} again."
        )


def check_state(program: Program) -> None:
    """Reads all state, and raises FormatError, naming the tensor, where a file no longer holds what was written."""
    for name, variable in program.state.items():
        variable.data.check(name)


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """``NAME.boost`` (or a name without a suffix) writes a program directory, ``NAME.mindir`` one self-contained
    MindIR, ``NAME.ir`` or ``NAME.txt`` the text form.

    What stood there before is replaced at once when the new one is complete. Raises Error when the suffix is another,
    the place cannot be written, or something stands there that is no program.
    """
    path = Path(path)
    if not path.name:
        raise Error(f"'{path}' names no file: give a name such as program.boost")
    form = form_of(str(path))
    with explained(path):
        if form == "mindir":
            _save_mindir(program, path)
        elif form == "text":
            from ...text import print_program

            with replacing_file(path) as file:
                file.write(print_program(program).encode("utf-8"))
        else:
            _save_directory(program, path)


def _save_mindir(program: Program, path: Path) -> None:
    from ...rewrite.ranks.adasum import needs_job
    from ..mindir.writer import write_mindir

    cycle = program.schedule.cycle
    # One that was read from a self-contained file runs the same graph for each micro-batch, and is one already.
    is_single = len(program.graphs) == 1 and len(cycle) == 1
    if is_single and not any(map(needs_job, program.graphs.values())):
        graph, state = program.graphs[cycle[0].graph], program.state
        noted = note_compiled(program, state, self_contained=False)
    else:
        from .self_contained import lower_to_single_graph

        graph, state = lower_to_single_graph(program)
        noted = note_compiled(program, state, self_contained=True)
    write_mindir(path, graph, state, noted)


# -- writing a directory -----------------------------------------------------------------------------------------------


def _save_directory(program: Program, path: Path) -> None:
    from ..mindir.writer import write_mindir

    if path.exists() and not (path.is_dir() and ((path / PROGRAM).is_file() or not any(path.iterdir()))):
        raise Error(f"{path}: something stands there that is no program; remove it or choose another name")
    for name in program.graphs:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}", name):
            raise Error(f"graph '{name}' cannot be saved: its name becomes a file name (letters, digits, _ . -)")
    with replacing_directory(path) as temporary:
        for name, graph in program.graphs.items():
            write_mindir(temporary / f"{name}.mindir", graph, program.state, program.metadata, stateless=True)
        stored = _save_state(program, temporary / STATE)
        files = {f"{name}.mindir": checksum_of_file(temporary / f"{name}.mindir") for name in program.graphs}
        document = _lay_out(_describe(program, stored, files))
        with replacing_file(temporary / PROGRAM) as file:
            file.write(document.encode("utf-8", "backslashreplace"))


def _describe(program: Program, stored: dict[str, int], files: dict[str, str]) -> dict[str, Any]:
    schedule = program.schedule
    return {
        "format": FORMAT,
        "name": program.name,
        "target": program.target,
        "pipeline": program.pipeline,
        "schedule": {
            "cycle": [{"graph": e.graph, "repeat": e.repeat} for e in schedule.cycle],
            "flush": schedule.flush,
            "count": schedule.count,
            "max_skipped": schedule.max_skipped,
            "choice": None if schedule.choice is None else asdict(schedule.choice),
            "search": None if schedule.search is None else asdict(schedule.search),
        },
        "graphs": {
            name: {
                "file": f"{name}.mindir",
                "checksum": files[f"{name}.mindir"],
                "inputs": [{"name": v.name, "type": str(v.type)} for v in graph.inputs],
                "outputs": list(graph.outputs),
                "states": list(graph.states),
                "origins": _origins(graph),
            }
            for name, graph in program.graphs.items()
        },
        "state": {
            name: {
                "dtype": str(v.dtype),
                "shape": list(v.shape),
                "role": v.role,
                "trainable": v.trainable,
                "weight": v.weight,
                "initial": "file" if name in stored else "zeros",
                "checksum": shown(stored[name]) if name in stored else None,
                "info": v.info,
            }
            for name, v in program.state.items()
        },
        "source": program.source,
        "metadata": program.metadata,
        "reports": [r.to_json() for r in program.reports],
    }


def _lay_out(document: dict[str, Any]) -> str:
    """JSON with a line for each member of a section: readable, and three times as fast as indenting it all."""

    def compact(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, default=str)

    sections = []
    for key, value in document.items():
        if isinstance(value, dict) and value:
            members = ",\n".join(f"  {compact(name)}: {compact(member)}" for name, member in value.items())
            text = f"{{\n{members}\n }}"
        elif isinstance(value, list) and value:
            text = "[\n" + ",\n".join(f"  {compact(member)}" for member in value) + "\n ]"
        else:
            text = compact(value)
        sections.append(f" {compact(key)}: {text}")
    return sealed("{\n" + ",\n".join(sections))


def _origins(graph: Graph) -> dict[str, list[list[Any]]]:
    """By function ("" is the graph itself): position of a node, the nodes it came from, the passes that made it."""
    found = {}
    for name, part in [("", graph), *graph.functions.items()]:
        rows = [
            [i, list(node.origin.sources), list(node.origin.passes)]
            for i, node in enumerate(part)
            if node.origin is not None
        ]
        if rows:
            found[name] = rows
    return found


def _save_state(program: Program, path: Path) -> dict[str, int]:
    """Writes what is not all zero, and returns the checksum of each such variable."""
    from ...files.tensor_file import write_data

    tensors: dict[str, tuple[TensorType, Data]] = {}
    stored: dict[str, int] = {}
    for name, variable in program.state.items():
        if variable.data.nbytes != variable.type.nbytes:
            raise Error(f"state '{name}' is {variable.type} but has {variable.data.nbytes} bytes")
        if variable.data.is_zero():
            continue
        stored[name] = variable.data.checksum()
        variable.data.check(name, stored[name])
        type_ = variable.type
        if type_.dtype is DType.COMPLEX128:  # safetensors has none: stored as pairs of float64
            type_ = TensorType(DType.FLOAT64, (*type_.shape, 2))
        tensors[name] = type_, variable.data
    write_data(path, tensors, {"format": "boost-compile"})
    return stored


# -- reading a directory -----------------------------------------------------------------------------------------------


def _load_directory(path: Path) -> Program:
    try:
        text = _own_file(path / PROGRAM).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"{path}: a directory without {PROGRAM}, so no program; give a .boost directory") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path / PROGRAM}: cannot be read: {error}") from None
    try:
        document = Document.parse(text)
        program = _build(path, document)
        check_seal(text, document)
        return program
    except FormatError as error:
        shown = printable(str(error))
        raise FormatError(shown if shown.startswith(str(path)) else f"{path / PROGRAM}: {shown}") from None


def _own_file(path: Path) -> Path:
    """A file of a program directory. That of somebody else may hold a pipe, which would be read for ever, or a link to
    a file that the program is not to have."""
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise FormatError(f"{path}: a link that leads out of the program's directory; copy the file itself there")
    if path.exists() and not path.is_file():
        raise FormatError(f"{path}: not a regular file; copy the whole program directory again")
    return path


def _build(path: Path, document: Document) -> Program:
    from ..mindir.reader import read_stateless

    if document["format"].integer(0) != FORMAT:
        raise document["format"].wrong(f"{FORMAT}, the only format that this version reads")
    state = _load_state(path, document["state"])
    graphs: dict[str, Graph] = {}
    for name, described in document["graphs"].items():
        file = described["file"].text()
        if Path(file).name != file or "\\" in file:
            raise described["file"].wrong("the name of a file in this directory")
        states: dict[str, TensorType] = {}
        for entry in described["states"].list():
            if entry.text() not in state:
                raise entry.wrong("a name from $.state")
            states[entry.text()] = state[entry.text()].type
        graph = graphs[name] = read_stateless(_own_file(path / file), name, states)
        written = noted(described)
        if written is not None and shown(written) != checksum_of_file(path / file):
            raise FormatError(f"{path / file}: is not what was written: the file is damaged; copy or compile it again")
        inputs = described["inputs"].list()
        if len(inputs) != len(graph.inputs):
            raise described["inputs"].wrong(f"the {counted(len(graph.inputs), 'input')} of {file}")
        for value, entry in zip(graph.inputs, inputs, strict=True):
            value.name = entry["name"].text()
        graph.outputs = described["outputs"].texts()
        _restore_origins(graph, described["origins"])
    schedule = _schedule(document["schedule"], graphs, state)
    return Program(
        graphs=graphs,
        state=state,
        schedule=schedule,
        name=document["name"].text(),
        target=document["target"].one_of(TARGETS),
        metadata=document["metadata"].free(),
        source={key: value.text() for key, value in document["source"].items()},
        pipeline=document["pipeline"].text(),
        reports=[_report(r) for r in document["reports"].list()],
    )


def _schedule(document: Document, graphs: dict[str, Graph], state: dict[str, StateVariable]) -> Schedule:
    known = tuple(graphs)
    cycle = tuple(Entry(e["graph"].one_of(known), e["repeat"].integer(1)) for e in document["cycle"].list())
    if not cycle:
        raise document["cycle"].wrong("at least one entry")
    flush, count, limit = document["flush"], document["count"], document["max_skipped"]
    return Schedule(
        cycle,
        flush=None if flush.value is None else flush.one_of(known),
        count=None if count.value is None else count.one_of(tuple(state)),
        max_skipped=None if limit.value is None else limit.integer(1),
        choice=None if document["choice"].value is None else _choice(document["choice"], known, state),
        search=None if document["search"].value is None else _search(document["search"], known, state),
    )


def _choice(document: Document, graphs: tuple[str, ...], state: dict[str, StateVariable]) -> Choice:
    if document["variants"].integer(2) > len(graphs):
        raise document["variants"].wrong(f"at most {len(graphs)}, the number of graphs")
    given: dict[str, Any] = {
        "variants": document["variants"].integer(2),
        "kind": document["kind"].one_of(KINDS),
        "probability": document["probability"].number(),
        "cycles": document["cycles"].integer(1),
        "seed": document["seed"].integer(0),
        "state": document["state"].one_of(tuple(state)),
        "sequence": tuple(number.integer(0) for number in document["sequence"].list()),
        "repeat": document["repeat"].truth(),
    }
    try:
        return Choice(**given)
    except VerifyError as error:
        raise FormatError(f"{document.place}: {error}") from None


def _search(document: Document, graphs: tuple[str, ...], state: dict[str, StateVariable]) -> Search:
    return Search(
        trial=document["trial"].one_of(graphs),
        judge=document["judge"].one_of(graphs),
        pending=document["pending"].one_of(tuple(state)),
        at_most=document["at_most"].integer(1),
        kept=document["kept"].texts(),
    )


def _report(document: Document) -> PassResult:
    unknown = set(document.object()) - {field.name for field in fields(PassResult)}
    if unknown:
        raise FormatError(f"{document.place}: not the result of a pass (it has no '{min(unknown)}')")
    return PassResult(
        name=document["name"].text(),
        options=document["options"].free(),
        matched=document["matched"].integer(0),
        changed=document["changed"].integer(0),
        misses=[Miss(miss["site"].text(), miss["reason"].text()) for miss in document["misses"].list()],
        statistics=document["statistics"].free(),
        preserves=document["preserves"].truth(),
        seconds=document["seconds"].number(),
        summary=document["summary"].text(),
    )


def _restore_origins(graph: Graph, document: Document) -> None:
    for name, rows in document.items():
        part = graph if name == "" else graph.functions.get(name)
        if part is None:
            raise FormatError(f"{rows.place}: no function has this name")
        nodes = list(part)
        for row in rows.list():
            entries = row.list()
            if len(entries) != 3 or entries[0].integer(0) >= len(nodes):
                raise row.wrong(f"[position below {len(nodes)}, [sources], [passes]]")
            nodes[entries[0].value].origin = Origin(entries[1].texts(), entries[2].texts())


def _load_state(path: Path, document: Document) -> dict[str, StateVariable]:
    stored = _stored(path / STATE)
    state: dict[str, StateVariable] = {}
    for name, described in document.items():
        dtype = described["dtype"].one_of(tuple(d.value for d in DType if d is not DType.STRING))
        shape = tuple(d.integer(0) for d in described["shape"].list())
        if len(shape) > MAX_RANK:
            raise described["shape"].wrong(f"at most {MAX_RANK} dimensions")
        type_ = TensorType(DType(dtype), shape)
        data: Data
        if described["initial"].one_of(("file", "zeros")) == "zeros":
            data = ZeroData(type_.nbytes)
        elif name not in stored:
            raise FormatError(f"{described.place}: '{name}' is not in {STATE}")
        else:
            data = replace(stored[name], written=noted(described))
            if data.nbytes != type_.nbytes:
                raise FormatError(f"{described.place}: {type_} needs {type_.nbytes} bytes, {STATE} has {data.nbytes}")
        trainable = described["trainable"]
        if trainable.value is not None:
            trainable.truth()
        role = described["role"].one_of(ROLES)
        weight = described["weight"].text()
        state[name] = StateVariable(name, type_, data, role, trainable.value, described["info"].free(), weight)
    return state


def _stored(path: Path) -> dict[str, MappedData]:
    """Where each tensor of a safetensors file lies; the library checks the file, its header says the places."""
    from safetensors import SafetensorError, safe_open

    try:
        if not _own_file(path).is_file():
            raise FormatError(f"{path}: missing; copy the whole program directory")
        with safe_open(str(path), framework="numpy"):
            pass
        file = MappedFile(path)
        view = file.view()
    except (SafetensorError, OSError) as error:
        raise FormatError(
            f"{path}: not a safetensors file ({printable(str(error))}); save or copy the program again"
        ) from None
    start = 8 + int.from_bytes(view[:8], "little")
    header = json.loads(bytes(view[8:start]))
    places = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: MappedData(file, start + a, b - a) for name, (a, b) in places.items()}
