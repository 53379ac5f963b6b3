"""The options of boost-run, and what can be said of them before anything is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from ...ir.core.errors import RuntimeFailure
from ...runtime.data.data_position import EndOfEpoch
from ...runtime.state.checkpoint import READABLE, WRITABLE
from .. import cli


@dataclass(frozen=True, kw_only=True)
class Job:
    """The request. ``arguments`` are the words of the command line, for the ranks of a job and for the command that
    resumes it."""

    arguments: tuple[str, ...]
    program: str
    data: str | None
    epochs: int
    device: str
    batch_size: int | None
    seed: int
    shuffle: bool
    load: str | None
    partial: bool
    resume: str | None
    save: str | None
    save_every: int | None
    save_minutes: float | None
    keep: int
    end_of_epoch: EndOfEpoch
    settings: tuple[str, ...]
    val: str | None
    val_split: float | None
    evaluate: str | None
    metrics: tuple[str, ...]
    label: str | None
    allow_nonfinite: bool
    ranks: int
    check_replicas: int | None
    sync: str
    master_port: int | None
    log_dir: str | None
    print_lowered: bool
    quiet: bool
    as_json: bool

    @property
    def states_kept(self) -> int:
        """How many saved states stay beside each other: one where nothing is saved on the way."""
        return 1 if self.save_every is None and self.save_minutes is None else self.keep

    def check(self) -> None:
        """Raises click.UsageError for options that do not fit together, and Error for files that are not there."""
        if self.load is not None and self.resume is not None:
            raise click.UsageError("--load and --resume exclude each other: --resume loads too")
        if self.partial and self.load is None:
            raise click.UsageError("--partial says how to --load: load what?")
        for given, flag in ((self.save_every, "--save-every"), (self.save_minutes, "--save-minutes")):
            if given is not None and self.save is None:
                raise click.UsageError(f"{flag} needs --save: where to?")
        self._check_evaluation()
        for path in filter(None, (self.data, self.load, self.val)):
            check_readable(path)
        if self.resume is not None:
            from ...runtime.training.retention import previous_states

            if not previous_states(Path(self.resume)):
                check_readable(self.resume)
        if self.save is not None:
            cli.check_writable(self.save)
        for state, what in ((self.save, WRITABLE), (self.load or self.resume, READABLE)):
            if state is not None and Path(state).suffix not in what:
                raise RuntimeFailure(f"{state}: no state file by its name; end it with one of {', '.join(what)}")
        if self.evaluate is not None:
            check_readable(self.evaluate if is_data(self.evaluate) else place_of(self.evaluate)[0])

    def _check_evaluation(self) -> None:
        on_data = self.evaluate is not None and is_data(self.evaluate)
        if self.data is None:
            only_prints = self.print_lowered and self.evaluate is None
            if not on_data and not only_prints:
                raise click.UsageError("--data is missing: what is to be trained on? (--eval FILE.npz alone evaluates)")
            for given, flag in (
                (self.save, "--save"), (self.resume, "--resume"), (self.val, "--val"), (self.val_split, "--val-split"),
                (self.ranks > 1 and not only_prints, "--ranks"),
            ):  # fmt: skip
                if given:
                    raise click.UsageError(f"{flag} is for training, and without --data nothing is trained")
        if self.val is not None and self.val_split is not None:
            raise click.UsageError("--val and --val-split exclude each other: both say what to evaluate on")
        if (self.metrics or self.label) and not (self.val or self.val_split or on_data):
            raise click.UsageError("--metric and --label need data to evaluate: --val, --val-split or --eval FILE.npz")


def is_data(place: str) -> bool:
    """Whether ``--eval`` names data, and not a function."""
    return place.endswith(".npz")


def place_of(text: str) -> tuple[str, str]:
    """The path and the name in ``FILE.py:FUNCTION``."""
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise RuntimeFailure(f"--eval {text}: write FILE.py:FUNCTION, or FILE.npz")
    return path, name


def check_readable(path: str) -> None:
    if os.path.isdir(path):
        raise RuntimeFailure(f"{path}: a file is expected, and this is a folder")
    if not os.path.isfile(path):
        raise RuntimeFailure(f"{path}: no such file")
