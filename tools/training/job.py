"""The options of boost-run, and what can be said of them before anything is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...ir.core.errors import RuntimeFailure
from ...ir.core.which_weights import WEIGHTS, Weights
from ...runtime.evaluation.metrics import METRICS
from ...runtime.training.log_files import target_of
from .. import cli
from ..command import argument, option, place
from ..jobs import rank

if TYPE_CHECKING:
    from ...runtime.data.data_position import EndOfEpoch


STATES_KEPT = 2
"""How many of the states that a training saves on its way stay."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The request. ``arguments`` are the words of the command line, for the ranks of a job and for the command that
    resumes it."""

    arguments: tuple[str, ...]
    program: str = argument(required=False)
    data: str | None = place("Arrays by input name (or in order), a row a sample.", metavar="FILE.npz")
    epochs: int = option("Passes over the data.", type=click.IntRange(1), default=1)
    device: str = option("", type=click.Choice(["CPU", "GPU", "Ascend"], case_sensitive=False), default="CPU")
    batch_size: int | None = option("Samples a micro-batch [as exported].", type=click.IntRange(1), metavar="B")
    seed: int = option("For the order of samples and random primitives.", default=0)
    shuffle: bool = option("Reorder the samples each epoch [on].", "--shuffle/--no-shuffle", default=True)
    load: str | None = place("Start from this state (.safetensors, .ckpt or .npz).", metavar="PATH")
    partial: bool = option("With --load: only what both have, by name and shape (fine-tuning).")
    resume: str | None = place("Go on where --save wrote this state, up to --epochs in all.", metavar="PATH")
    save: str | None = place("Write the state there after training (.safetensors or .ckpt).", metavar="PATH")
    save_every: int | None = option("And after every K-th optimizer step.", type=click.IntRange(1), metavar="K")
    save_minutes: float | None = option(
        "And when T minutes have passed.", type=click.FloatRange(min=0, min_open=True), metavar="T"
    )
    keep: int | None = option("How many states to keep then [2].", type=click.IntRange(1), metavar="K")
    end_of_epoch: EndOfEpoch = option(  # noqa: RUF009 (a Literal)
        "What happens to a cycle that an epoch does not fill: it goes on, ends early, or is left out.",
        type=click.Choice(["carry", "flush", "drop"]),
        default="carry",
    )
    settings: tuple[str, ...] = option(
        "Set a hyperparameter, such as learning_rate=0.001.", "--set", metavar="NAME=VALUE"
    )
    val: str | None = place("Evaluate on this data after each epoch.", metavar="FILE.npz")
    val_split: float | None = option(
        "Evaluate on this part of the data instead, and train on the rest: 0.1.",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        metavar="P",
    )
    evaluate: str | None = option(
        "FILE.py:FUNCTION, called with the session after each epoch; or FILE.npz, data to evaluate on, without "
        "--data only that.",
        "--eval",
        metavar="FILE",
    )
    metrics: tuple[str, ...] = option(
        f"One of {', '.join(METRICS)}; may be given again [loss].",
        "--metric",
        type=click.Choice(METRICS),
        metavar="NAME",
    )
    weights: Weights = option(  # noqa: RUF009 (a Literal)
        "What evaluation and --save-weights use: the weights, the averages that weight-average keeps, or the weights "
        "with the adapters of lora added.",
        type=click.Choice(WEIGHTS),
        default="trained",
    )
    save_weights: str | None = place(
        "Write weights and statistics alone there after training, for the native network.", metavar="PATH"
    )
    load_adapter: str | None = place("Start from these adapters of lora (.safetensors, of PEFT too).", metavar="PATH")
    save_adapter: str | None = place(
        "Write the adapters of lora alone there after training, as PEFT does (.safetensors).", metavar="PATH"
    )
    label: str | None = option("What metrics compare with [what only the loss takes].", metavar="INPUT")
    allow_nonfinite: bool = option("Go on when data, loss or weights are not finite.")
    ranks: int = option("Train in N processes.", type=click.IntRange(1), default=1, metavar="N")
    hosts: str | None = place(
        "The machines of the ranks, as many on each: a file with an address a line, this machine first [only this one]."
    )
    rsh: str = option(
        "The command that runs another on a host, called with the address and a line for the shell there.",
        default="ssh -o BatchMode=yes", metavar="COMMAND",
    )  # fmt: skip
    restarts: int = option(
        "Start the job again from its newest saved state when it loses a rank, up to K times.",
        type=click.IntRange(0), default=0, metavar="K",
    )  # fmt: skip
    check_replicas: int | None = option(
        "Compare the weights of all ranks after every K-th optimizer step.", type=click.IntRange(1), metavar="K"
    )
    sync: str = option(
        "BatchNorm statistics in what --save writes: those of the first rank, or averaged over the ranks.",
        type=click.Choice(["none", "average"]),
        default="none",
    )
    master_port: int | None = option("Where ranks meet [a free port].", type=click.IntRange(1024, 65535), metavar="P")
    log: tuple[str, ...] = option(
        "Write each step's loss, rate, speed and monitors: jsonl:FILE, tensorboard:DIR or mindinsight:DIR; may be "
        "given again.",
        metavar="KIND:PLACE",
    )
    log_dir: str | None = place("Keep what each rank printed there.", metavar="DIR")
    check_device: str | None = option(
        "Say whether this device can be used, and what is missing; with PROGRAM, whether for it. Trains nothing.",
        type=click.Choice(["CPU", "GPU", "Ascend"], case_sensitive=False),
    )
    print_lowered: bool = option("Print what MindSpore will run to stderr; without data only that.")
    quiet: bool = option("Show nothing of the training: files and errors say all.", "-q")
    as_json: bool = option("One JSON document on stdout instead of the report.", "--json")

    @property
    def states_kept(self) -> int:
        """How many saved states stay beside each other: one where nothing is saved on the way."""
        return (self.keep or STATES_KEPT) if self._saves_on_the_way else 1

    @property
    def _saves_on_the_way(self) -> bool:
        return self.save_every is not None or self.save_minutes is not None

    def check(self) -> None:
        """Raises click.UsageError for options that do not fit together, and Error for files that are not there."""
        if self.load is not None and self.resume is not None:
            raise click.UsageError("--load and --resume exclude each other: --resume loads too")
        if self.partial and self.load is None:
            raise click.UsageError("--partial says how to --load: load what?")
        if self.load_adapter is not None and self.resume is not None:
            raise click.UsageError("--load-adapter and --resume exclude each other: --resume loads adapters too")
        for given, flag in ((self.save_every, "--save-every"), (self.save_minutes, "--save-minutes")):
            if given is not None and self.save is None:
                raise click.UsageError(f"{flag} needs --save: where to?")
        if self.keep is not None and not self._saves_on_the_way:
            raise click.UsageError("--keep needs --save with --save-every or --save-minutes: which states?")
        if rank.role() is None:  # a job that lost ranks may go on with one
            self._check_ranks()
        if self.restarts and not (self.save and self._saves_on_the_way):
            raise click.UsageError("--restarts needs --save with --save-every or --save-minutes: go on from where?")
        if self.sync != "none" and self.save is None:
            raise click.UsageError(f"--sync {self.sync} says what --save writes: give --save")
        from ...runtime.state.adapter_file import SUFFIX
        from ...runtime.state.checkpoint import READABLE, WRITABLE

        self._check_evaluation()
        self._check_places()
        for path in filter(None, (self.data, self.load, self.load_adapter, self.val)):
            check_readable(path)
        if self.resume is not None:
            from ...runtime.training.retention import previous_states

            if not previous_states(Path(self.resume)):
                check_readable(self.resume)
        for path in filter(None, (self.save, self.save_weights, self.save_adapter)):
            cli.check_writable(path)
        for state, what in (
            (self.save, WRITABLE),
            (self.save_weights, WRITABLE),
            (self.load or self.resume, READABLE),
            (self.save_adapter, (SUFFIX,)),
            (self.load_adapter, (SUFFIX,)),
        ):
            if state is not None and Path(state).suffix not in what:
                raise RuntimeFailure(f"{state}: no state file by its name; end it with one of {', '.join(what)}")
        if self.evaluate is not None:
            check_readable(self.evaluate if is_data(self.evaluate) else place_of(self.evaluate)[0])

    def _check_ranks(self) -> None:
        for wanted, flag in (
            (self.restarts > 0, "--restarts"), (self.hosts is not None, "--hosts"),
            (self.check_replicas is not None, "--check-replicas"), (self.log_dir is not None, "--log-dir"),
            (self.sync != "none", f"--sync {self.sync}"),
        ):  # fmt: skip
            if wanted and self.ranks == 1:
                raise click.UsageError(f"{flag} is for jobs of several ranks: how many? (--ranks N)")
        if self.hosts is not None:
            check_readable(self.hosts)

    def _check_places(self) -> None:
        """UsageError where two options write the same file; Error for a log that cannot be written."""
        logs = {target: f"--log {target[0]}:{target[1]}" for target in map(target_of, self.log)}
        written = [
            (self.save, "--save"), (self.save_weights, "--save-weights"), (self.save_adapter, "--save-adapter"),
            *((str(path), flag) for (kind, path), flag in logs.items() if kind == "jsonl"),
        ]  # fmt: skip
        for (path, flag), (other, its) in combinations([(p, f) for p, f in written if p is not None], 2):
            if os.path.realpath(path) == os.path.realpath(other):
                raise click.UsageError(f"{flag} and {its} write the same file, {path}: name another for one of them")

    def _check_evaluation(self) -> None:
        on_data = self.evaluate is not None and is_data(self.evaluate)
        if self.data is None:
            only_prints = self.print_lowered and self.evaluate is None
            if not on_data and not only_prints:
                raise click.UsageError("--data is missing: what is to be trained on? (--eval FILE.npz alone evaluates)")
            for given, flag in (
                (self.save, "--save"), (self.save_weights, "--save-weights"), (self.resume, "--resume"),
                (self.save_adapter, "--save-adapter"), (self.val, "--val"), (self.val_split, "--val-split"),
                (self.ranks > 1 and not only_prints, "--ranks"),
                (self.log, "--log"),
            ):  # fmt: skip
                if given:
                    raise click.UsageError(f"{flag} is for training, and without --data nothing is trained")
        if self.val is not None and self.val_split is not None:
            raise click.UsageError("--val and --val-split exclude each other: both say what to evaluate on")
        evaluates = self.evaluate or self.val or self.val_split
        if self.weights != "trained" and not (evaluates or self.save_weights):
            raise click.UsageError(
                "--weights says what is evaluated and what --save-weights writes: give --val, --val-split, --eval or "
                "--save-weights"
            )
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
