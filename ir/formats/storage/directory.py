"""A program as a directory.

It holds ``program.json`` (:mod:`.program_json`: what runs when, on which state, and how it came about), one stateless
MindIR a graph, whose last inputs are its states, and ``state.safetensors``, written once and shared by the graphs.
Writing is atomic. ``program.json`` notes a checksum of each file and tensor, and at its end one of itself. All are
compared when a directory is read but those of the tensors, which stay on disk until they are needed: those when a
session or another file takes the values, and by :func:`.load.check_state`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from ...core.data import Data, MappedData, MappedFile, ZeroData
from ...core.errors import Error, FormatError
from ...core.graph import Graph
from ...core.naming import printable
from ...core.program import ROLES, Program, StateVariable
from ...core.types import MAX_RANK, DType, TensorType
from ...core.wording import counted
from ...files.atomic import replacing_directory, replacing_file
from ...files.checksums import check_seal, checksum_of_file, noted, shown
from ...files.document import Document
from ...files.tensor_file import write_data
from .program_json import FORMAT, build_program, describe_program, lay_out, restore_origins

PROGRAM, STATE = "program.json", "state.safetensors"


def write_directory(program: Program, path: Path) -> None:
    """Writes a program directory, replacing one that stands there; Error where something else does."""
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
        document = lay_out(describe_program(program, stored, files))
        with replacing_file(temporary / PROGRAM) as file:
            file.write(document.encode("utf-8", "backslashreplace"))


def _save_state(program: Program, path: Path) -> dict[str, int]:
    """Writes what is not all zero, and returns the checksum of each such variable."""
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


# -- reading --------------------------------------------------------------------------------------------------------


def read_directory(path: Path) -> Program:
    """Reads a program directory; FormatError, naming file and place, where it is not what was written."""
    try:
        text = _own_file(path / PROGRAM).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"{path}: a directory without {PROGRAM}, so no program; give a .boost directory") from None
    except OSError as error:
        raise FormatError(f"{path / PROGRAM}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path / PROGRAM}: not UTF-8: the file is damaged") from None
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
        restore_origins(graph, described["origins"])
    return build_program(document, graphs, state)


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
