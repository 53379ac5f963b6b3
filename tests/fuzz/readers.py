"""One harness for each reader: given bytes from anyone, it returns or raises an Error, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from boost_compile.ir.core.errors import Error
from boost_compile.ir.core.program import Program
from boost_compile.ir.formats.storage.directory import PROGRAM, STATE
from boost_compile.ir.formats.storage.load import load

from . import mutations, seeds
from .use import spell, use

Read = Callable[[bytes, Path], Any]
"""Reads the bytes; the folder is for what it writes."""


@dataclass(frozen=True)
class Reader:
    name: str
    read: Read
    seeds: Callable[[], Sequence[bytes]]
    mutate: mutations.Mutate = mutations.damaged
    suffix: str = ""
    """How files end that the commands read with it; empty where no command takes such a file as its input."""


READERS: dict[str, Reader] = {}


def reader(name: str, seeds: Any, mutate: mutations.Mutate = mutations.damaged, suffix: str = "") -> Any:
    def register(read: Read) -> Read:
        READERS[name] = Reader(name, read, seeds, mutate, suffix)
        return read

    return register


def mutated(reader: Reader, data: bytes, random: Random) -> bytes:
    """One mutation: of the structure, mostly."""
    if random.random() < 0.3:
        return mutations.damaged(data, random, reader.seeds())
    return reader.mutate(data, random)


def surroundings(folder: Path) -> Path:
    """A place for a file, beside the data file, the link and the folder that it may name."""
    home = folder / "home"
    (home / "folder").mkdir(parents=True)
    (folder / "secret").write_bytes(b"\x01" + bytes(300))
    (home / "data_0").write_bytes(b"\x01" + bytes(300))
    (home / "link").symlink_to(folder / "secret")
    (folder / "out").mkdir()
    return home


def _single(name: str, then: Callable[[Program, Path], None]) -> Read:
    """Reads a program from one file and does with it what ``then`` does."""

    def read(data: bytes, folder: Path) -> None:
        path = surroundings(folder) / name
        path.write_bytes(data)
        then(load(path), folder / "out")

    return read


reader("mindir", seeds.mindirs, mutations.mindir, ".mindir")(_single("m.mindir", spell))
reader("mindir-commands", seeds.mindirs, mutations.mindir, ".mindir")(_single("m.mindir", use))
reader("text", seeds.texts, mutations.text, ".ir")(_single("m.txt", spell))
reader("text-commands", seeds.texts, mutations.text, ".ir")(_single("m.txt", use))


def _directory(file: str, then: Callable[[Program, Path], None]) -> Read:
    """Reads a program directory one file of which is the input; the other files are those of the same seed."""

    def read(data: bytes, folder: Path) -> None:
        refused = []
        for i, files in enumerate(seeds.program_files()):
            if file not in files:
                continue
            place = folder / str(i)
            home = surroundings(place)
            for name, content in {**files, file: data}.items():
                (home / name).write_bytes(content)
            try:
                then(load(home), place / "out")
            except Error as error:
                refused.append(error)
        if refused:
            raise refused[0]

    return read


def _files(file: str) -> Callable[[], list[bytes]]:
    return lambda: [files[file] for files in seeds.program_files() if file in files]


for _name, _file, _mutate, _then in (
    ("program-document", PROGRAM, mutations.document, spell),
    ("program-commands", PROGRAM, mutations.document, use),
    ("program-graph", "step.mindir", mutations.mindir, spell),
    ("program-state", STATE, mutations.header, spell),
):
    reader(_name, _files(_file), _mutate)(_directory(_file, _then))


@reader("onnx", seeds.onnxs, mutations.onnx, ".onnx")
def _onnx(data: bytes, folder: Path) -> None:
    path = surroundings(folder) / "m.onnx"
    path.write_bytes(data)
    spell(load(path, {"N": 2}), folder / "out")


@reader("pipeline", seeds.pipelines, mutations.text)
def _pipeline(data: bytes, folder: Path) -> None:
    from boost_compile.passes.framework.pipeline import parse_pipeline, print_pipeline

    text = data.decode("utf-8", "surrogateescape")
    parse_pipeline(print_pipeline(parse_pipeline(text)))


def _language(data: bytes, random: Random) -> bytes:
    change = mutations.document if data[:1] == b"J" and random.random() < 0.7 else mutations.text
    return data[:1] + change(data[1:], random)


@reader("configuration", seeds.configurations, _language)
def _configuration(data: bytes, folder: Path) -> None:
    from boost_compile.passes.configuration.configuration import read_configuration

    path = folder / ("c.json" if data[:1] == b"J" else "c.toml")
    path.write_bytes(data[1:])
    read_configuration(path)


@reader("checkpoint-safetensors", seeds.safetensors, mutations.header)
def _safetensors(data: bytes, folder: Path) -> None:
    from boost_compile.ir.files.checkpoint_file import open_checkpoint
    from boost_compile.runtime.state.checkpoint import read_state_and_notes

    path = folder / "c.safetensors"
    path.write_bytes(data)
    for read in (open_checkpoint, read_state_and_notes):
        read(path)


@reader("checkpoint-ckpt", seeds.checkpoints)
def _ckpt(data: bytes, folder: Path) -> None:
    from boost_compile.ir.files.checkpoint_file import open_checkpoint

    path = folder / "c.ckpt"
    path.write_bytes(data)
    open_checkpoint(path)


@reader("npz", seeds.npz)
def _npz(data: bytes, folder: Path) -> None:
    from boost_compile.runtime.state.checkpoint import read_npz

    path = folder / "d.npz"
    path.write_bytes(data)
    read_npz(path)


@reader("basis", seeds.npy)
def _basis(data: bytes, folder: Path) -> None:
    from boost_compile.passes.dim_reduce.basis import read_basis

    path = folder / "b.npy"
    path.write_bytes(data)
    read_basis(str(path), {"w": (3, 2)}, 2)


POSITION = b'{"cycle": 3, "epoch": 1, "micro_batch": 2, "order": {"batch": 4, "end_of_epoch": "flush"}}'


@reader("position", lambda: [POSITION], mutations.document)
def _position(data: bytes, folder: Path) -> None:
    from boost_compile.runtime.data.data_position import DataPosition

    DataPosition.from_text(data.decode("utf-8", "replace"), "file").check({"batch": 4, "end_of_epoch": "flush"})


@reader("job", lambda: [b'{"rank": 0, "losses": [1.0], "message": "x"}'], mutations.document)
def _job(data: bytes, folder: Path) -> None:
    from boost_compile.tools.jobs.folder import FAILURE, JobFolder

    (folder / f"rank_0.{FAILURE}.json").write_bytes(data)
    JobFolder(folder).told(0, FAILURE)


@reader("crash-file", lambda: [b"// rerun with: boost-compile f.ir --passes 'overflow-check'\n"], mutations.text)
def _crash_file(data: bytes, folder: Path) -> None:
    from boost_compile.passes.framework.pipeline import parse_pipeline
    from boost_compile.tools.reduce import _named_in

    path = folder / "crash.ir"
    path.write_bytes(data)
    parse_pipeline(_named_in(str(path)) or "")
