"""The whole way on real digits: export LeNet-5, compile it, train it, and compare with training in MindSpore alone.

It is a check as well: it fails if too few digits are recognised, if the compiled training differs from the native one
by more than rounding, or if an overflow moves a weight.

    python examples/demo.py
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

os.environ.setdefault("GLOG_v", "3")  # errors only, before MindSpore is imported

import digits
import numpy as np
from boost_compile.runtime.training.callback import Callback
from boost_compile.runtime.training.history import Epoch
from lenet import accuracy, export_lenet
from native_accumulation import train
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import boost_compile as bc

ROOT = Path(__file__).resolve().parent.parent

MICRO_BATCH, ACCUMULATE, EPOCHS, LEARNING_RATE, SEED = 32, 4, 5, 0.05, 1
WINDOW = MICRO_BATCH * ACCUMULATE

ENOUGH = 0.90
"""The share of held-out digits that five epochs must reach."""

ROUNDING = 0.01
"""Largest relative difference of a loss in the first epoch: some five times what changing the last bit of every initial
weight does to native training (2e-3). Beyond that any rounding grows without end, and the accuracy is comparable."""

ACCURACY_SPREAD = 0.02
"""By how much the accuracy may differ, where rounding differs."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def training_failures(steps: int, native_steps: int, losses: np.ndarray, native_losses: np.ndarray) -> list[str]:
    """What tells two trainings apart beyond rounding, by their optimizer steps and the losses of their windows."""
    failures = []
    if steps != native_steps:
        failures.append(f"{steps} optimizer steps, {native_steps} in native training")
    if len(losses) != len(native_losses):
        return [*failures, f"{len(losses)} losses, {len(native_losses)} in native training"]
    off = float(np.max(np.abs(losses - native_losses) / native_losses))
    if not off <= ROUNDING:
        failures.append(f"a loss of the first epoch is off by {off:.1e}, rounding makes up to {ROUNDING:.0e}")
    return failures


def accuracy_failures(epochs: int, ours: float, native: float) -> list[str]:
    failures = []
    if not abs(ours - native) <= ACCURACY_SPREAD:
        failures.append(f"{ours:.1%} of the held-out digits are right, {native:.1%} after native training")
    if epochs >= EPOCHS and not ours >= ENOUGH:
        failures.append(f"{ours:.1%} of the held-out digits are right, {ENOUGH:.0%} were to be reached")
    return failures


class Watch(Callback):
    """Prints a line an epoch."""

    def on_epoch(self, session: bc.Session, epoch: Epoch) -> None:
        bar = "█" * round(25 * epoch.evaluation)
        console.print(
            f"epoch {epoch.number:2}   mean loss {epoch.loss:.4f}   "
            f"held-out accuracy {epoch.evaluation:6.1%} [green]{bar}[/green]"
        )


def run(command: str, *arguments: str) -> None:
    """Runs a command of this environment as a user would."""
    console.print(f"[bold cyan]$[/] {escape(shlex.join([command, *arguments]))}", soft_wrap=True)
    console.file.flush()
    subprocess.run([Path(sysconfig.get_path("scripts")) / command, *arguments], check=True)


def heading(number: int, text: str) -> None:
    console.print()
    if console.is_terminal:
        console.rule(f"[bold]{number}. {text}", align="left")
    else:
        console.print(f"{number}. {text}")


def table(*columns: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i else "left")
    return made


def show_memory(large: Path, program: bc.Program) -> None:
    heading(3, f"Memory: a batch of {WINDOW} in one step, and as a window")
    shown = table("estimated, MB", "values of the graphs", "whole session")
    rows = {f"one step of {WINDOW}": bc.load(large), f"{ACCUMULATE} micro-batches of {MICRO_BATCH}": program}
    for name, each in rows.items():
        memory = bc.memory(each)
        shown.add_row(name, f"{memory.pool / 1e6:.1f}", f"{memory.total / 1e6:.1f}")
    console.print(shown)


def train_and_compare(program: bc.Program, epochs: int) -> tuple[bc.Session, list[str]]:
    """The trained session, and what went wrong."""
    heading(4, "Train the compiled program")
    data = digits.load()
    train_digits, test_digits = data[:2], data[2:]
    console.print(
        f"{len(data.train_labels):,} digits for training, {len(data.test_labels):,} held out; "
        f"learning rate {LEARNING_RATE}, momentum 0.9."
    )
    session = bc.Session(program)
    history = session.fit(
        train_digits,
        epochs=epochs,
        seed=SEED,
        callbacks=[Watch()],
        evaluate=lambda s: accuracy(s.state(), *test_digits),
        progress=False,
    )
    state, right = session.state(), history.epochs[-1].evaluation
    seconds = sum(epoch.seconds for epoch in history.epochs)

    heading(5, "Train natively, the same digits in the same order")
    console.print("Accumulation written by hand in MindSpore: examples/native_accumulation.py")
    batches = digits.order(len(data.train_labels), MICRO_BATCH, epochs, SEED)
    with console.status("MindSpore is training …"):
        start = time.perf_counter()
        losses, native = train(*train_digits, batches, ACCUMULATE, LEARNING_RATE)
        native_seconds = time.perf_counter() - start
    native_right = accuracy(native, *test_digits)
    an_epoch = len(batches) // epochs
    native_loss = float(np.mean(losses[-an_epoch:]))
    windows = [np.mean(losses[i : i + ACCUMULATE]) for i in range(0, an_epoch - ACCUMULATE + 1, ACCUMULATE)]
    equal = sum(np.array_equal(state[name], value) for name, value in native.items())
    steps, native_steps = state["global_step"].item(), native["global_step"].item()
    result = table("", "compiled", "native MindSpore")
    result.add_row(f"held-out digits right (of {len(data.test_labels):,})", f"{right:.1%}", f"{native_right:.1%}")
    result.add_row(f"mean loss of epoch {epochs}", f"{history.epochs[-1].loss:.4f}", f"{native_loss:.4f}")
    result.add_row("optimizer steps", str(steps), str(native_steps))
    result.add_row("time, graph compilation included", f"{seconds:.1f} s", f"{native_seconds:.1f} s")
    console.print(result)
    console.print(f"{equal} of {len(native)} states (weights, momenta, counters) are equal in every bit.")
    failures = training_failures(steps, native_steps, np.array(history.losses[: len(windows)]), np.array(windows))
    return session, failures + accuracy_failures(epochs, right, native_right)


def show_overflow(session: bc.Session) -> list[str]:
    """A window with an infinity in one micro-batch, then a sound one; what went wrong."""
    heading(6, "An overflow")
    images, labels, *_ = digits.load()
    before = session.state()
    weights = [name for name, variable in session.program.state.items() if variable.role in ("weight", "slot")]
    failures = []
    for spoiled in (True, False):
        for k in range(ACCUMULATE):
            rows = slice(k * MICRO_BATCH, (k + 1) * MICRO_BATCH)
            batch = np.full_like(images[rows], np.inf) if spoiled and k == 1 else images[rows]
            result = session.step(batch, labels[rows])
        after = session.state()
        moved = sum(not np.array_equal(before[name], after[name]) for name in weights)
        what = "with infinities in its second micro-batch" if spoiled else "of sound micro-batches"
        did = "skipped" if result.overflow else "updated"
        console.print(f"A window {what}: {did}, {moved} of {len(weights)} weights and momenta moved.")
        if bool(result.overflow) != spoiled or (moved == 0) != spoiled:
            failures.append(f"a window {what} was {did}")
    return failures


def what_next(report: Path) -> None:
    """Commands as they can be typed here."""
    scripts = Path(sysconfig.get_path("scripts"))
    on_path = str(scripts) in os.environ.get("PATH", "").split(os.pathsep)
    compile_ = "boost-compile" if on_path else os.path.relpath(scripts / "boost-compile")
    console.print(f"\nNext: open {report} in a browser.", soft_wrap=True)
    console.print("Then try a network of yours. Export its training cell (README.md, Use it), and run", soft_wrap=True)
    console.print(f"  {escape(compile_)} model.mindir --accumulate 4 --verify", soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="fewer than 5 are not held to an accuracy")
    parser.add_argument("--output", type=Path, default=ROOT / "demo-out", help="folder for the files [demo-out]")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs: at least 1")
    started = time.perf_counter()
    folder = Path(os.path.relpath(options.output))
    folder.mkdir(parents=True, exist_ok=True)
    source, compiled, report = folder / "lenet.mindir", folder / "lenet.boost", folder / "report.html"

    heading(1, "Export LeNet-5 from MindSpore")
    export_lenet(source, MICRO_BATCH, LEARNING_RATE)
    console.print(f"Wrote {source}: forward, backward and Momentum for micro-batches of {MICRO_BATCH} digits.")
    heading(2, f"Compile: a window of {ACCUMULATE} micro-batches, an effective batch of {WINDOW}")
    run("boost-compile", str(source), "--accumulate", str(ACCUMULATE), "--check-overflow", "-o", str(compiled))
    program = bc.load(compiled)
    show_memory(export_lenet(folder / f"lenet_{WINDOW}.mindir", WINDOW, LEARNING_RATE), program)
    session, failures = train_and_compare(program, options.epochs)
    failures += show_overflow(session)
    heading(7, "What was done, to look at")
    run("boost-inspect", str(compiled), "--original", str(source), "-o", str(report))

    console.print()
    for failure in failures:
        console.print(f"[bold red]FAILED[/] {escape(failure)}", soft_wrap=True)
    verdict = "[bold red]Failed" if failures else "[bold green]All checks passed"
    console.print(f"{verdict}[/] in {time.perf_counter() - started:.0f} s; the files are in {folder}{os.sep}.")
    what_next(report)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
