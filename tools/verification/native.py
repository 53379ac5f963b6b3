"""The untouched file, run by MindSpore alone: ``mindspore.load`` and ``nn.GraphCell``, without any of boost-compile.

All that boost-compile believes of an original stands between its file and the reference of a verification: the reader,
the order of effects, the lowering for the session, the place at which gradients are laid open. So the file itself says
first what a step of it makes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from ...ir.analysis.targets import lacking
from ...ir.core.errors import FormatError
from ...ir.core.program import Program
from ...ir.core.wording import counted
from ...ir.formats.mindir.reader import read_mindir
from ...ir.text import print_graph
from ...runtime.data.inputs import to_tensors
from ...runtime.differentiation.export import first_line
from ...runtime.engine.engine import flat_outputs
from ...runtime.engine.scratch import scratch_folder
from ...runtime.training.result import StepResult
from ...runtime.training.session import Session
from .context import Context, NotApplicable, Property
from .deterministic import chances, without_dropout
from .reference import Batch, Reference, Values
from .report import EQUAL, Result
from .stated import runnable
from .tolerance import Expected, compare, equal, result_off

STEPS = 2
OTHERWISE = "boost-compile reads the file otherwise than MindSpore runs it"
"""Where the property fails."""


class UntouchedFile(Property):
    """Two steps of the file by MindSpore alone. The original in a session of boost-compile makes the same of each, in
    every state and result, and so does the reference, where no pass makes another network."""

    name = "untouched file"
    promise = "MindSpore alone makes the same of the original's file as boost-compile does"

    def check(self, c: Context) -> Result:
        unknown = {node.op.name for graph in c.original.graphs.values() for node in lacking(graph, c.program.target)}
        if unknown:
            what = f"the file holds {', '.join(sorted(unknown))}, for which {c.program.target} has no kernel"
            raise NotApplicable(f"the reference is the legalized file, because {what}")
        if chances(c.original) or without_dropout(c.original) is not c.original:
            raise NotApplicable("the reference is not the file as MindSpore runs it, since that draws random numbers")
        native = _run(c.original, c.batches[:STEPS])
        reference = c.reference if c.base is c.original else None
        base = c.base if reference is not None else runnable(c.original, c.promises, c.program.target)
        session = None if reference is not None else Session(base, device=c.device)
        before: Values = {n: v.initial for n, v in c.original.state.items()}
        off = [EQUAL]
        for batch, (wanted, after) in zip(c.batches, native, strict=False):
            if unread := sorted(after.keys() - before.keys()):
                return self.failed(f"the file has a state '{unread[0]}', which boost-compile does not read")
            if session is None:
                assert reference is not None
                result, state = reference.step(before, batch)
                found = [state, {**reference.cycle(before, [batch]).expected.state}]
            else:
                session.load_state(before)
                result = session.step(*batch)
                found = [session.state()]
            if what := _different(result, wanted):
                return self.failed(what)
            for state in found:
                if not all(equal(state[n], v) for n, v in after.items()):
                    reference = reference or Reference(base, c.device)
                    own = reference.cycle(before, [batch]).expected
                    off.append(compare(state, Expected(before, after, partial(_around, after, own)), after))
            before = {**before, **after}
        return self.verdict(off, f"{counted(len(native), 'step')} by mindspore.load and nn.GraphCell")


def _around(after: Values, own: Expected) -> tuple[Values, ...]:
    """The state that the file makes, moved as far as noise moves that of the reference."""
    return tuple(
        {n: v + (m[n] - own.state[n]) if v.dtype.kind == "f" else v for n, v in after.items()} for m in own.moved
    )


def _different(ours: StepResult, wanted: StepResult) -> str:
    """What of the results differs by more than rounding."""
    for name, value in wanted.outputs.items():
        a, b = np.asarray(ours.outputs.get(name)), np.asarray(value)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"the result '{name}' is {a.dtype}{list(a.shape)}, and of the file {b.dtype}{list(b.shape)}"
        if result_off(name, a, b, 0.0).excess > 1:
            return f"the result '{name}' is {ours.outputs[name]}, and of the file {value}"
    return ""


def _run(original: Program, batches: Sequence[Batch]) -> list[tuple[StepResult, Values]]:
    """Results and state of as many steps; NotApplicable where MindSpore alone does not run the file."""
    (graph,) = original.graphs.values()
    with _file(original) as path:
        import mindspore
        from mindspore import nn

        try:
            cell = nn.GraphCell(mindspore.load(str(path)))
            done: list[tuple[StepResult, Values]] = []
            for batch in batches:
                raw = cell(*to_tensors(graph, batch))
                results = flat_outputs(graph, raw if isinstance(raw, tuple) else (raw,))
                state = {p.name: p.asnumpy().copy() for p in cell.get_parameters()}
                result = StepResult(graph.name, results, ended_cycle=True)
                _ = result.outputs
                done.append((result, state))
        except Exception as error:
            why = f"mindspore.load and nn.GraphCell do not run it: {first_line(error)}"
            raise NotApplicable(f"the reference is not the file as MindSpore runs it: {why}") from error
    return done


@contextmanager
def _file(original: Program) -> Iterator[Path]:
    """The file as it was read. NotApplicable where there is none, or the original is another by now."""

    def no(why: str) -> NotApplicable:
        return NotApplicable(f"the reference is not a file as MindSpore runs it: {why}")

    file = original.file
    if file is None:
        raise no("the original was not read from a MindIR")
    with scratch_folder() as folder:
        path = file.path
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != original.source.get("sha256"):
            path = folder / "original.mindir"
            path.write_bytes(file.view())
        try:
            read = read_mindir(path)
        except FormatError as error:
            raise no(f"it is not whole any more ({error})") from error
        same = read.state.keys() == original.state.keys() and all(
            equal(v.initial, original.state[n].initial) for n, v in read.state.items()
        )
        if not same or _text(read) != _text(original):
            raise no("the original was changed after it was read")
        yield path


def _text(program: Program) -> str:
    (graph,) = program.graphs.values()
    return print_graph(graph, annotations=False)
