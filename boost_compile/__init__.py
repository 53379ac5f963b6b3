"""boost-compile: a graph-rewrite compiler for training graphs.

The public API. Importing it loads neither MindSpore nor numpy: what a name needs is imported on its first use.
"""

from __future__ import annotations

from os import path as _path
from typing import TYPE_CHECKING

if not _path.isdir(_path.join(__path__[0], "ir")):
    # Python was started in a checkout and so found this folder first; the rest of the package stands beside it.
    __path__.append(_path.dirname(_path.abspath(__path__[0])))

from .ir.core.display import render_with as _render_with
from .ir.core.legalizing import legalize_with as _legalize_with
from .ir.core.measuring import measure_with as _measure_with
from .ir.core.saving import save_with as _save_with
from .ir.core.updating import export_with as _export_with

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from . import boost, passes
    from .ir.analysis.compare.difference import ProgramDiff
    from .ir.analysis.cost.footprint import Footprint
    from .ir.core.errors import Error
    from .ir.core.measuring import Errors
    from .ir.core.program import Program, StateVariable
    from .ir.core.spec import Spec
    from .passes.configuration.boost_document import from_boost_config
    from .passes.framework.base import Pass
    from .runtime.data.sources import Shard
    from .runtime.differentiation.capture import capture
    from .runtime.differentiation.differentiate import differentiate
    from .runtime.engine.device_check import check_device
    from .runtime.in_compiler.door import disable
    from .runtime.in_compiler.enabled import Enabled
    from .runtime.training.callback import Callback
    from .runtime.training.log import Log
    from .runtime.training.result import StepResult
    from .runtime.training.retention import load_newest
    from .runtime.training.saving import SaveEvery
    from .runtime.training.session import Session
    from .tools.budget import plan_memory
    from .tools.proof.run import Proved
    from .tools.verification.report import Verification

    __version__: str

_HOMES = {
    "Callback": ".runtime.training.callback",
    "Error": ".ir.core.errors",
    "Log": ".runtime.training.log",
    "Program": ".ir.core.program",
    "SaveEvery": ".runtime.training.saving",
    "Session": ".runtime.training.session",
    "Shard": ".runtime.data.sources",
    "boost": ".boost",
    "capture": ".runtime.differentiation.capture",
    "check_device": ".runtime.engine.device_check",
    "differentiate": ".runtime.differentiation.differentiate",
    "disable": ".runtime.in_compiler.door",
    "from_boost_config": ".passes.configuration.boost_document",
    "load_newest": ".runtime.training.retention",
    "passes": ".passes",
    "plan_memory": ".tools.budget",
}

__all__ = [
    "Callback",
    "Error",
    "Log",
    "Program",
    "SaveEvery",
    "Session",
    "Shard",
    "__version__",
    "boost",
    "capture",
    "check_device",
    "compile",
    "diff",
    "differentiate",
    "disable",
    "enable",
    "evaluation_network",
    "from_boost_config",
    "load",
    "load_newest",
    "memory",
    "passes",
    "plan_memory",
    "prove",
    "verify",
]


def load(path: str | os.PathLike[str], dimensions: Mapping[str, int] | None = None) -> Program:
    """Reads a MindIR, a forward model in ONNX, or a program that was saved, and finds the roles of a training graph's
    state (weight, slot, …). ``dimensions`` gives the sizes, by name, that an ONNX model leaves open.

    :class:`Error` for a file that is damaged. ``differentiate`` makes a training graph of a forward one.
    """
    from .ir.formats.storage.load import load

    return load(path, dimensions)


def compile(
    program: Program | str | os.PathLike[str] | Any,
    passes: str | Sequence[Pass],
    *inputs: Any,
    allow_no_match: bool = False,
    target: str | None = None,
) -> Program:
    """Rewrites a program by a pipeline (``"gradient-accumulation{steps=4}"``) or by a list of passes, and returns a new
    one.

    ``program`` is a :class:`Program`, the path of one, or a live training cell with ``inputs``, as :func:`capture`
    takes them. It stays as it is. ``reports`` of the result says what each pass did. A pass that matches nothing is an
    :class:`Error`. It is a warning with ``allow_no_match``, or where it is optional (``"less-bn?"``, as in all
    pipelines of :func:`from_boost_config`).

    ``target`` ("cpu", "gpu", "ascend") says where the program is to run. Primitives that the target has no kernel for,
    or none for these element types, are replaced, or are an :class:`Error`. Without it the program keeps its target
    ("cpu" as read), and a :class:`Session` refuses a primitive that nothing replaces when it opens.
    """
    from .passes.framework.manager import compile_program
    from .runtime.differentiation.capture import program_of

    return compile_program(program_of(program, inputs), passes, allow_no_match=allow_no_match, target=target)


def enable(
    passes: str | Sequence[Pass],
    *,
    cell: Any = None,
    match: str = "",
    name: str = "",
    on_update: Callable[[StepResult], object] | None = None,
    allow_no_match: bool = False,
) -> Enabled:
    """Rewrites every training step that MindSpore compiles from now on, inside of its compiler. The script stays as it
    is: its steps take the same data, return the same results and train the same Parameters.

    ``passes`` is a pipeline or a list, as :func:`compile` takes it. Evaluation, and whatever else trains nothing, stays
    untouched. Where a script has several steps, ``cell`` (a Cell, an optimizer, a function, or a list of Parameters) or
    ``match`` (a pattern of names, such as ``"generator.*"``) picks those that train one of these Parameters. ``name``
    is put in front of the names of new state. ``on_update`` is called after each update of the weights, with the
    :class:`StepResult` of its cycle.

    Call this before the first step. A step that cannot be rewritten is an :class:`Error` where the script runs it, and
    so is one that MindSpore had compiled before. The result is a context manager: at the end of its block, or by
    :func:`disable`, MindSpore compiles as ever.
    """
    from .passes.framework.manager import compile_program, in_stages
    from .passes.framework.pipeline import print_pipeline
    from .runtime.in_compiler.door import enable

    chosen = in_stages(passes)

    def rewritten(program: Program, target: str) -> Program:
        return compile_program(program, chosen, allow_no_match=allow_no_match, target=target)

    return enable(rewritten, print_pipeline(chosen), cell, match, name, on_update)


def verify(
    original: Program | str | os.PathLike[str],
    program: Program | str | os.PathLike[str],
    *,
    data: str | Sequence[Any] | None = None,
    cycles: int = 2,
    seed: int = 0,
    device: str = "CPU",
    bisect: bool = True,
    quick: bool = False,
) -> Verification:
    """Runs ``program`` beside the ``original`` that it was compiled from and checks what its passes promise.

    ``data`` is an .npz file or a list of micro-batches; without it they are random. The report says for each property
    how large the measured and the allowed difference are, and which pass is guilty; ``verified`` sums it up. ``quick``
    leaves out properties that take long, and the report says which. Both programs may be given as paths.
    """
    from dataclasses import replace

    from .runtime.differentiation.capture import program_of
    from .tools.verification.verifier import verify

    # What is tried out must not train a live network.
    one, two = (replace(program_of(given), live=None) for given in (original, program))
    return verify(one, two, data=data, cycles=cycles, seed=seed, device=device, bisect=bisect, quick=quick)


def prove(original: Program | str | os.PathLike[str], program: Program | str | os.PathLike[str]) -> Proved:
    """Proves that ``program`` trains as the ``original`` that it was compiled from, for all inputs, states and lengths
    of a window. Nothing is run: both are evaluated at random numbers of a prime field.

    The result has a verdict for each state and result; ``proved`` sums it up. Both programs may be given as paths.
    """
    from .runtime.differentiation.capture import program_of
    from .tools.proof.run import prove

    return prove(program_of(original), program_of(program))


def evaluation_network(
    program: Program | str | os.PathLike[str],
    state: Mapping[str, Any] | None = None,
    *,
    result: str | None = None,
    batch: int | str | None = None,
) -> Program:
    """Makes the network of a training program, as it predicts, a program of its own: inference mode, without loss,
    backward part and optimizer. ``save("network.mindir")`` writes it for MindSpore. Its counterpart in
    ``mindspore.boost`` is ``network_auto_process_eval``.

    ``program`` may be the path of one. ``state`` holds weights, as ``session.state()`` gives them, instead of the
    program's own. ``result`` is the node where the network ends, instead of where the loss begins. ``batch`` is the
    number of samples that it takes, or ``"any"``. An :class:`Error` names the nodes that do not allow another number.
    """
    from .ir.rewrite.evaluation import network_of
    from .runtime.differentiation.capture import program_of

    return network_of(program_of(program), "trained", result, state, "the given state", batch).program


def diff(
    before: Program | str | os.PathLike[str], after: Program | str | os.PathLike[str], *, computation: bool = False
) -> ProgramDiff:
    """Compares two programs: nodes added, removed and changed, by pass and by scope; state; schedule.

    Both may be given as paths. The result is False where nothing differs. With ``computation`` names, scopes, notes and
    the order of effects do not count.
    """
    from .ir.analysis.compare.diff import diff
    from .runtime.differentiation.capture import program_of

    return diff(program_of(before), program_of(after), computation=computation)


def memory(program: Program | str | os.PathLike[str], threads: int | None = None) -> Footprint:
    """Estimates how much memory a session of ``program``, or of the one at that path, will take on CPU, in bytes and by
    cause. ``threads`` is the number of cores that it may use, by default all.
    """
    from .runtime.differentiation.capture import program_of
    from .runtime.engine.footprint import footprint

    return footprint(program_of(program), threads)


def _html_of(thing: object) -> str:
    from .tools.views.notebook import notebook_of

    return notebook_of(thing)


def _save(program: Program, path: str) -> None:
    from .ir.formats.storage.save import save

    save(program, path)


def _gradient_errors(program: Program, data: str) -> Errors:
    from .tools.gradient_errors import gradient_errors

    return gradient_errors(program, data)


def _exported(optimizer: Spec, weights: Sequence[StateVariable], taken: Collection[str], rate: float | None) -> Program:
    from .runtime.differentiation.update import export_update

    return export_update(optimizer, weights, taken, rate)


def _legalized(program: Program, target: str) -> Program:
    from .passes.framework.manager import compile_program

    return compile_program(program, "legalize", target=target)


_export_with(_exported)
_legalize_with(_legalized)
_render_with(_html_of)
_measure_with(_gradient_errors)
_save_with(_save)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version("boost-compile")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module = import_module(home, __name__)
    return module if name in ("boost", "passes") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
