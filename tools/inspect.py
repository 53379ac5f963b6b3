"""boost-inspect: what a training graph or a program holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..ir.core.which_weights import WEIGHTS, Weights
from ..ir.files.json_text import json_text
from . import cli
from .command import Command, argument, option, parameters_of, place
from .outputs import check_output, check_suffix, suffix_of

if TYPE_CHECKING:
    from rich.console import Console

    from ..ir.analysis.compare.difference import ProgramDiff
    from ..ir.core.program import Program
    from ..ir.rewrite.evaluation import Evaluation
    from .views.shown import Shown

ANALYSES = ("anatomy", "paths", "effects", "batch", "seeds")
FORMATS = ("summary", *ANALYSES, "text", "json", "dot", "svg", "onnx", "python", "mindir", "model-explorer", "html")
SUFFIXES = {
    ".txt": "text", ".ir": "text", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".onnx": "onnx", ".mindir": "mindir",
    ".json": "json", ".html": "html",
}  # fmt: skip
TABLES = ("summary", *ANALYSES)
NAMED_LIKE = {**dict.fromkeys(TABLES, (".txt",)), "model-explorer": (".json",), "python": ("",)}
"""The suffixes of formats that -o does not choose by itself."""


class BatchSize(click.ParamType):
    """A number of samples, or any."""

    name = "N|any"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if text == "any":
            return text
        if not text.isdigit() or not 0 < int(text) < 2**31:
            self.fail(f"'{text}' is no number of samples: give one from 1, or any", param, ctx)
        return int(text)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The request: the options of boost-inspect."""

    file: str = argument()
    format_: str | None = option(
        "What to show; by default as -o ends, or summary.", "--format", type=click.Choice(FORMATS), metavar="FORMAT"
    )
    output: str | None = place("Write it here instead of to standard output.", "-o")
    graph_name: str | None = option("This graph of the program only.", "--graph", metavar="NAME")
    scope: str | None = option("Only nodes that stand in a matching scope ('layer1*', 'conv1-Conv2d').", metavar="GLOB")
    around: str | None = option("Only what stands around this node, input or state.", metavar="NODE")
    radius: int = option("With --around: how many edges.", type=click.IntRange(0), default=2)
    original: str | None = place("With html: what the program was compiled from, to compare with.")
    annotations: bool = option("With text: scopes, origins, names; with anatomy, seeds: every node.")
    open_: bool = option("With model-explorer: start Model Explorer on it.", "--open")
    other: str | None = place("What differs in this file (text, json, html): exit 1 if it does.", "--diff")
    computation: bool = option("With --diff: not names, scopes, notes and the order of effects.")
    dimensions: Mapping[str, int] = cli.dimensions_option()
    standard: bool = option("With onnx: the network, in standard operators that any runtime executes.")
    forward: bool = option("The network as it predicts, without loss, backward part and optimizer.")
    result: str | None = option("With --forward: where the network ends [where its loss begins].", metavar="NODE")
    state: str | None = place("With --forward: trained weights, from boost-run --save.")
    weights: Weights = option(  # noqa: RUF009 (a Literal)
        "With --forward: the weights, the averages that weight-average keeps, or with the adapters of lora added.",
        type=click.Choice(WEIGHTS),
        default="trained",
    )
    batch_size: int | str | None = option(
        "With --forward: how many samples it takes [as in training].", type=BatchSize()
    )
    memory: bool = option("What a session will have in memory, estimated (with summary or json).")
    doctor: bool = option("What is probably wrong, with the remedy: exit 1 if anything is.")
    targets: bool = option("Which devices have kernels for it, and what runs on the CPU instead.")
    data: str | None = place("With --doctor: look at this training data too.", metavar="FILE.npz")
    checksums: bool = option("Also read all state, and compare it with its checksums.", "--check")
    force: bool = option("Replace FILE of -o though it is of another kind.")

    @cached_property
    def format(self) -> str:
        """The format: as --format says, or as -o ends. Both must agree, so that no text lands in a file of a picture.
        Of a difference, text is the least."""
        given, output = self.format_, self.file_written
        if output is not None and given is None:
            chosen = check_suffix(output, SUFFIXES)
            given = "summary" if self.memory and chosen == "text" else chosen
        elif output is not None and given is not None:
            suffixes = NAMED_LIKE.get(given) or tuple(s for s, format_ in SUFFIXES.items() if format_ == given)
            if suffix_of(output) not in ("", *suffixes):
                python = given == "python"
                named = "a folder, without a suffix" if python else f"a name that ends with {' or '.join(suffixes)}"
                raise click.UsageError(f"'{output}' is not named like {given}: give {named}")
        given = given or "summary"
        return "text" if self.other is not None and given == "summary" else given

    @property
    def file_written(self) -> str | None:
        """The file or folder that -o names; None for standard output."""
        return None if self.output == "-" else self.output

    @property
    def predicts(self) -> bool:
        """Whether the network is to be shown, and not the training graph."""
        return self.forward or self.standard

    def check(self) -> None:
        """click.UsageError for options that do not fit together, OptionError for an output that must not be written."""
        self._check_formats()
        self._check_pieces()
        self._check_company()
        if self.format == "mindir" and not self.predicts:
            raise click.UsageError("a MindIR of the network: add --forward (boost-compile -o writes the whole program)")
        if self.format == "mindir" and not (self.output or "").endswith(".mindir"):
            raise click.UsageError("a MindIR is no text: give a file with -o FILE.mindir")
        if self.format == "onnx" and not self.standard:
            raise click.UsageError(
                "an ONNX model holds the network in ONNX's operators: add --standard (--format html or model-explorer "
                "show the graph)"
            )
        if self.format == "onnx" and self.output is None:
            raise click.UsageError("an ONNX model is not a text: give a file with -o FILE.onnx")
        if self.file_written is not None:
            plain = (*TABLES, "text") if self.other is not None else TABLES  # what has no form of its own
            inputs = (self.file, self.other, self.original, self.state)
            check_output(self.file_written, inputs, force=self.force, recognised=self.format not in plain)

    def _check_formats(self) -> None:
        for given, flag, formats in (
            (self.original, "--original", ("html",)),
            (self.annotations, "--annotations", ("text", "anatomy", "seeds")),
            (self.open_, "--open", ("model-explorer",)),
            (self.standard, "--standard", ("onnx",)),
            (self.other, "--diff", ("text", "json", "html")),
            (self.memory, "--memory", ("summary", "json")),
            (self.doctor, "--doctor", ("summary", "json")),
            (self.targets, "--targets", ("summary", "json")),
        ):
            if given and self.format not in formats:
                *others, last = formats
                either = f"{', '.join(others)} or {last}" if others else last
                raise click.UsageError(f"{flag} goes with --format {either}, not with {self.format}")

    def _check_pieces(self) -> None:
        """An option about a whole program, or the whole network, goes without a selection."""
        piece = self.graph_name or self.scope or self.around
        for given, what in (
            (self.other, "--diff compares whole programs"),
            (self.memory, "--memory is that of whole programs"),
            (self.original, "--original compares whole programs"),
        ):
            if given and piece:
                raise click.UsageError(f"{what}: leave out --graph, --scope and --around")
        for given, flag in ((self.doctor, "--doctor"), (self.targets, "--targets")):
            if given and (self.memory or self.predicts or piece or self.other is not None):
                raise click.UsageError(
                    f"{flag} looks at the whole program: leave out what selects or shows parts of it"
                )
        if self.doctor and self.targets:
            raise click.UsageError("--doctor and --targets are two questions: ask one after the other")
        if self.predicts and (self.graph_name or self.original or self.other is not None):
            raise click.UsageError("--forward shows one graph, the network: leave out --graph, --original and --diff")
        if self.standard and piece:
            raise click.UsageError("--standard writes the network: leave out --scope and --around (see --result)")

    def _check_company(self) -> None:
        """An option that says something of another one goes with that."""
        for given, flag, company, needed in (
            (self.computation or None, "--computation", self.other is not None, "--diff"),
            (self.data, "--data", self.doctor, "--doctor"),
            (self.result, "--result", self.predicts, "--forward"),
            (self.state, "--state", self.predicts, "--forward"),
            (None if self.weights == "trained" else True, f"--weights {self.weights}", self.predicts, "--forward"),
            (self.batch_size, "--batch-size", self.predicts, "--forward"),
        ):
            if given is not None and not company:
                raise click.UsageError(f"{flag} goes with {needed}")
        if self.checksums and self.other is not None:
            raise click.UsageError("--check goes without --diff: check each file by itself")


@click.command("boost-inspect", cls=Command, params=parameters_of(Job))
@click.version_option(package_name="boost-compile")
def command(**options: Any) -> None:
    """Shows what FILE holds: a MindIR file, an ONNX model, a program directory (.boost), or text (.ir, .txt, - for
    stdin).

    \b
    summary         graphs, schedule, state, costs, what every pass did
    anatomy         loss; gradient, update, slots of every weight; roles of state
    paths           what happens to each gradient on its way, and who takes it
    effects         what reads and writes state, in order, and the tokens
    batch           which axes hold the batch, and what keeps it from changing
    seeds           where the derivative of the loss starts; random seeds
    text            one line a node; with -o the full form, which reads back
    json            summary and anatomy as one document
    dot, svg        a drawing, scopes folded as needed (svg needs Graphviz)
    python          a forward graph as a Cell; -o FOLDER writes its weights too
    onnx            with --standard: the network, for any ONNX runtime
    mindir          with --forward: the network for MindSpore's own runtimes
    model-explorer  for Google's Model Explorer (--open starts it)
    html            a report in one file: passes, before and after, memory

    Every format shows the network of a training graph with --forward; --standard does so by itself.
    """
    inspect(Job(**options))


def inspect(job: Job) -> None:
    """Shows or writes what the job asks for."""
    job.check()
    cli.pause_collector()
    if job.other is not None:
        _diff(job, job.other)
    program = cli.read_program(job.file, _sizes(job, job.file, job.original))
    if job.checksums:
        from ..ir.formats.storage.load import check_state

        check_state(program)
    if job.predicts:
        network = _network(job, program)
        if job.standard or job.format == "mindir":
            assert job.output is not None
            click.echo(f"exported {_written(network, job.output, job.standard)}")
            return
        if job.file_written is not None:
            click.echo(f"exported {network}")
        program = network.program
    if job.doctor:
        _doctor(job, program)
    if job.targets:
        _targets(job, program)
    elif job.memory:
        _memory(job, program)
    else:
        _show(job, program)
    _say_written(job)


def _network(job: Job, program: Program) -> Evaluation:
    from ..ir.rewrite.evaluation import network_of

    weights: dict[str, Any] | None = None
    if job.state is not None:
        from ..runtime.state.checkpoint import read_state

        weights = read_state(job.state)
    origin, runs = job.state or "", not job.standard
    return network_of(program, job.weights, job.result, weights, origin, job.batch_size, runs=runs)


def _written(network: Evaluation, output: str, standard: bool) -> Evaluation:
    if standard:
        from importlib.metadata import version

        from ..ir.formats.onnx.standard import export_onnx

        return export_onnx(Path(output), network, version("boost-compile"))
    from ..ir.formats.storage.save import save

    save(network.program, output, force=True)  # what stands there was looked at before
    return network


def _memory(job: Job, program: Program) -> None:
    from .views.memory_table import print_memory
    from .views.shown import shown

    _print(job, shown(program, job.file).memory().to_json(), print_memory)


def _targets(job: Job, program: Program) -> None:
    from .views.targets import describe_targets, lines_of_targets

    found = describe_targets(program)
    _tell(job, found, lines_of_targets(found))


def _doctor(job: Job, program: Program) -> NoReturn:
    """Ends with exit status 1 where something is found, 0 where nothing is."""
    from dataclasses import asdict

    from ..runtime.data.sources import read_data
    from .doctor.examination import examine

    found = examine(program, None if job.data is None else read_data(job.data))
    looked = " and the data" if job.data is not None else "; with --data FILE.npz the training data is looked at too"
    lines = [str(finding) for finding in found] or [f"Nothing found in the program{looked}."]
    _tell(job, [asdict(finding) for finding in found], lines)
    _end(job, bool(found))


def _analysis(job: Job, whole: Shown) -> str:
    from ..ir.core.errors import AnatomyError
    from ..passes.framework.manager import reopened
    from .views.analyses import print_analysis
    from .views.selection import chosen
    from .views.shown import shown

    def lines(view: Shown) -> str:
        nodes, _ = chosen(view, job.scope, job.around, job.radius)
        return print_analysis(view, job.format, nodes, full=job.annotations)

    try:
        return lines(whole)
    except AnatomyError:
        program, gone = reopened(whole.program)
        if not gone:
            raise
        # What is exchanged together is one value, in which no gradient has a way of its own.
        return f"before {' and '.join(p.name for p in gone)}\n\n{lines(shown(program, job.file))}"


def _show(job: Job, program: Program) -> None:
    from .views.selection import narrowed, only_graph
    from .views.shown import shown

    if job.graph_name is not None:
        program = only_graph(program, job.graph_name, job.file)
    whole = shown(program, job.file)
    if job.format in ANALYSES:
        _write(_analysis(job, whole), job.output)
        return
    view = narrowed(whole, job.scope, job.around, job.radius)
    if job.format in ("summary", "json"):
        from .views.summary import describe, print_summary

        _print(job, describe(view), print_summary)
    elif job.format == "text":
        from .views.text import highlighted, text_of

        complete = job.file_written is not None
        text = text_of(view, job.annotations or complete, data=complete)
        _write(highlighted(text) if not complete and cli.wants_colour(sys.stdout) else text, job.output)
    elif job.format == "dot":
        from .views.dot import dot_of

        _write(dot_of(view), job.output)
    elif job.format == "svg":
        from .views.dot import svg_of

        _write(svg_of(view), job.output)
    elif job.format == "python":
        from ..ir.formats.python.decompile import decompile
        from .views.python import write_python

        written = decompile(view.program)
        if job.file_written is None:
            _write(written.source, job.output)
        else:
            write_python(written, job.file_written)
    elif job.format == "html":
        _report(job, view)
    else:
        from .views.model_explorer import document_of, open_viewer

        text = json.dumps(document_of(view), ensure_ascii=False, separators=(",", ":")) + "\n"
        if job.open_:
            open_viewer(text, job.output)
        else:
            _write(text, job.output)


def _report(job: Job, view: Shown) -> None:
    from .verification.stored import read_verification
    from .views.original import read_original
    from .views.report import html_of

    view.verification = read_verification(Path(job.file))
    original = read_original(job.original, view.program, job.file, job.dimensions) if job.original else None
    _write(html_of(view, original, job.original or ""), job.output, page=True)


def _sizes(job: Job, path: str, other: str | None) -> Mapping[str, int] | None:
    """The sizes for the file or another one: they are for models that leave some open."""
    models = [each for each in (job.file, other) if each is not None and each.endswith(".onnx")] or [job.file]
    return job.dimensions if path in models else None


def _diff(job: Job, other: str) -> NoReturn:
    """Exits with 1 when the programs differ, with 0 when they do not, with 2 when that cannot be told."""
    from ..ir.analysis.compare.diff import diff
    from ..ir.core.errors import Error

    try:
        one, two = (cli.read_program(path, _sizes(job, path, other)) for path in (job.file, other))
        found = diff(one, two, computation=job.computation)
        colour = job.output is None and cli.wants_colour(sys.stdout)
        width = cli.terminal_width() if job.output is None and sys.stdout.isatty() else None
        text = _difference(found, job.format, job.file, other, colour=colour, width=width)
    except (Error, OSError):
        raise
    except Exception as bug:  # its usual status, 1, would say that the programs differ
        raise cli.Ended(cli.BAD_INPUT, f"internal: {type(bug).__name__}: {bug} (a bug: please report it)") from bug
    _write(text, job.output, page=job.format == "html")
    _end(job, bool(found))


def _difference(found: ProgramDiff, format_: str, a: str, b: str, *, colour: bool, width: int | None) -> str:
    """The difference as ``text``, ``json`` or ``html``; as text, in lines of at most ``width`` columns."""
    if format_ == "json":
        return json_text({"a": a, "b": b, **found.to_json()})
    if format_ == "html":
        from .views.diff_page import diff_page

        return diff_page(found, a, b)
    from ..ir.analysis.compare.diff_text import diff_text

    hang: Callable[[str], str] = str if width is None else partial(cli.hanging, width=width, code=None)
    return diff_text(found, colour=colour, hang=hang)


def _end(job: Job, found: bool) -> NoReturn:
    """Ends the command with a status that says whether anything was found."""
    _say_written(job)
    sys.stdout.flush()
    raise click.exceptions.Exit(1 if found else 0)


def _tell(job: Job, document: Any, lines: Iterable[str]) -> None:
    """A document as JSON, or in lines for people."""
    text = json_text(document) if job.format == "json" else "".join(f"{line}\n" for line in lines)
    _write(text, job.output)


def _print(job: Job, document: Any, printed: Callable[[Any, Console], None]) -> None:
    """A document as JSON, or in tables for people."""
    if job.format == "json":
        _write(json_text(document), job.output)
        return
    with cli.console_to(job.output) as out:
        printed(document, out)


def _write(text: str, output: str | None, *, page: bool = False) -> None:
    """``page``: HTML, whose names are harmless by themselves. Not a character of it may change: its policy knows its
    scripts by hash."""
    cli.write_text(text if page else cli.harmless(text), output)


def _say_written(job: Job) -> None:
    if job.file_written is not None:
        click.echo(f"Wrote {cli.safe(job.file_written)}.")


def main() -> None:
    cli.main(command)


if __name__ == "__main__":
    main()
