"""The files of a log: lines of JSON, and the event files of TensorBoard and MindInsight."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ...ir.core.errors import OptionError, nearest
from ...ir.files.atomic import explained
from ...ir.files.json_text import json_text


class Writer(Protocol):
    def write(self, record: Mapping[str, Any]) -> None:
        """Writes one record, so that who looks at the file finds it."""


def target_of(text: str) -> tuple[str, Path]:
    """The kind and the place in ``KIND:PLACE``. OptionError for a kind that there is not, for a package that is
    missing, for a place that cannot be written, and for one that holds something else, before anything is written."""
    kind, colon, place = text.partition(":")
    if not colon or not place:
        raise OptionError(f"log '{text}': write KIND:PLACE, such as {' or '.join(EXAMPLES.values())}")
    if kind not in EXAMPLES:
        raise OptionError(f"log '{text}': no kind of log is called '{kind}'{nearest(kind, list(EXAMPLES))}")
    if kind == "tensorboard" and find_spec("tensorboardX") is None:
        raise OptionError(
            f"log '{text}': tensorboardX, which writes the files of TensorBoard, is not installed: pip install "
            "'boost-compile[tensorboard]', or write jsonl:FILE"
        )
    path = Path(place)
    folder = path.parent if kind == "jsonl" else next(p for p in (path, *path.absolute().parents) if p.exists())
    if kind == "jsonl" and path.is_dir():
        raise OptionError(f"log '{text}': a folder stands there; name a file in it")
    if not folder.is_dir():
        what = "there is no folder" if kind == "jsonl" else "no folder, but a file is"
        raise OptionError(f"log '{text}': {what} '{folder}'")
    if not os.access(folder, os.W_OK) or (path.is_file() and not os.access(path, os.W_OK)):
        raise OptionError(f"log '{text}': '{folder if not path.is_file() else path}' is not writable; choose another")
    _check_replaceable(text, path)
    return kind, path


def _check_replaceable(text: str, path: Path) -> None:
    """OptionError for a file that is no log, and for a place in a program."""
    from ...ir.formats.storage.directory import PROGRAM

    place = path.absolute()
    program = next((folder for folder in (place, *place.parents) if (folder / PROGRAM).is_file()), None)
    if program is not None:
        raise OptionError(
            f"log '{text}': '{program}' is a program, which holds its own files alone; choose another place"
        )
    if path.is_file() and not _is_log(path):
        raise OptionError(f"log '{text}': '{path}' exists, and is no log of a training; choose another name")


def _is_log(path: Path) -> bool:
    """Whether a file begins as a log of lines of JSON does; one that was cut off, or is empty, may become one."""
    with explained(path), open(path, "rb") as file:
        head = file.read(len(HEAD))
    return HEAD.startswith(head) or head == HEAD


def open_log(kind: str, path: Path, *, resumed: bool) -> AbstractContextManager[Writer]:
    """A log at its place. ``resumed``: the training goes on, and so does its file."""
    if kind == "jsonl":
        return _json_lines(path, resumed)
    return _tensorboard(path) if kind == "tensorboard" else _mindinsight(path)


@contextmanager
def _json_lines(path: Path, resumed: bool) -> Iterator[Writer]:
    with explained(path), open(path, "r+b" if resumed and path.exists() else "wb") as file:
        # What a process that was killed had begun to write goes: a line is whole or not there.
        end = path.read_bytes().rfind(b"\n") + 1 if resumed else 0
        file.truncate(end)
        file.seek(end)
        yield _JsonLines(file, path)


class _JsonLines:
    def __init__(self, file: BinaryIO, path: Path):
        self._file, self._path = file, path

    def write(self, record: Mapping[str, Any]) -> None:
        with explained(self._path):
            self._file.write(json_text(dict(record), indent=None).encode())
            self._file.flush()


@contextmanager
def _tensorboard(path: Path) -> Iterator[Writer]:
    """TensorBoard reads all event files of a folder as one training: one that goes on writes a new one."""
    from tensorboardX import SummaryWriter

    with explained(path), SummaryWriter(str(path)) as events:
        yield _Events(events.add_scalar, lambda step: events.flush())


@contextmanager
def _mindinsight(path: Path) -> Iterator[Writer]:
    """Written by this process: MindSpore's SummaryRecord forks processes while its engine has threads, and now and then
    one of them waits forever for a lock."""
    from mindspore.train.summary.enums import WriterPluginEnum
    from mindspore.train.summary.writer import SummaryWriter
    from mindspore.train.summary_pb2 import Event

    with explained(path):
        path.mkdir(parents=True, exist_ok=True)
        second = int(time.time())
        while any(path.glob(f"*.summary.{second}.*")):
            second += 1
        with closing(SummaryWriter(str(path / f"events.out.events.summary.{second}.0.{platform.node()}_MS"))) as events:
            event = Event()

            def add(tag: str, value: float, step: int) -> None:
                event.summary.value.add(tag=tag, scalar_value=value)

            def finish(step: int) -> None:
                event.step, event.wall_time = step, time.time()
                events.write(WriterPluginEnum.SUMMARY.value, event.SerializeToString())
                events.flush()
                event.Clear()

            yield _Events(add, finish)


@dataclass(frozen=True)
class _Events:
    """``add`` takes a tag, its value and the step; ``finish`` writes what was added for a step."""

    add: Callable[[str, float, int], object]
    finish: Callable[[int], object]

    def write(self, record: Mapping[str, Any]) -> None:
        step = record["cycle"]
        numbers = list(_scalars(record))
        for tag, value in numbers:
            self.add(tag, value, step)
        if numbers:
            self.finish(step)


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a record by tag: ``loss``, ``epoch/loss``, ``monitors/weight-norm/conv1.weight``."""
    prefix = {"cycle": "", "epoch": "epoch/"}.get(record["event"])
    waiting = [] if prefix is None else [(prefix + name, value) for name, value in record.items() if name != "cycle"]
    for tag, value in waiting:
        if isinstance(value, Mapping):
            waiting.extend((f"{tag}/{name}", inner) for name, inner in value.items())
        elif isinstance(value, (list, tuple)) and all(isinstance(inner, (int, float)) for inner in value):
            waiting.extend((f"{tag}/{i}", inner) for i, inner in enumerate(value))
        elif isinstance(value, (bool, int, float)):
            yield tag, float(value)


EXAMPLES = {"jsonl": "jsonl:run.jsonl", "tensorboard": "tensorboard:runs/one", "mindinsight": "mindinsight:summary"}
"""The kinds of log, each as one writes it."""

HEAD = b'{"event":'
"""How each line of a log begins."""
