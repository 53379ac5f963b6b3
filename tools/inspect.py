"""boost-inspect: what a training graph or a program holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from . import cli
from .command import Command, Place
from .outputs import check_output, check_suffix, suffix_of

if TYPE_CHECKING:
    from ..ir.core.program import Program
    from ..ir.rewrite.evaluation import Evaluation
    from .views.shown import Shown

ANALYSES = ("anatomy", "paths", "effects", "batch", "seeds")
FORMATS = ("summary", *ANALYSES, "text", "json", "dot", "svg", "onnx", "python", "mindir", "model-explorer", "html")
SUFFIXES = {
    ".txt": "text", ".ir": "text", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".onnx": "onnx", ".mindir": "mindir",
    ".json": "json", ".html": "html",
}  # fmt: skip
NAMED_LIKE = {**dict.fromkeys(("summary", *ANALYSES), (".txt",)), "model-explorer": (".json",), "python": ("",)}
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


@click.command("boost-inspect", cls=Command)
@click.argument("file", type=Place())
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help="What to show; by default as -o ends, or summary.",
)
@click.option("-o", "--output", metavar="FILE", type=Place(), help="Write it here instead of to standard output.")
@click.option("--graph", "graph_name", metavar="NAME", help="This graph of the program only.")
@click.option("--scope", metavar="GLOB", help="Only nodes that stand in a matching scope ('layer1*', 'conv1-Conv2d').")
@click.option("--around", metavar="NODE", help="Only what stands around this node, input or state.")
@click.option("--radius", type=click.IntRange(0), default=2, show_default=True, help="With --around: how many edges.")
@click.option(
    "--original", metavar="FILE", type=Place(), help="With html: what the program was compiled from, to compare with."
)
@click.option("--annotations", is_flag=True, help="With text: scopes, origins, names; with anatomy, seeds: every node.")
@click.option("--open", "open_", is_flag=True, help="With model-explorer: start Model Explorer on it.")
@click.option(
    "--diff",
    "other",
    metavar="FILE",
    type=Place(),
    help="What differs in this file (text, json, html): exit 1 if it does.",
)
@click.option("--computation", is_flag=True, help="With --diff: not names, scopes, notes and the order of effects.")
@cli.dimensions_option
@click.option(
    "--standard", is_flag=True, help="With onnx: the network, in standard operators that any runtime executes."
)
@click.option(
    "--forward",
    is_flag=True,
    help="The network as it predicts, without loss, backward part and optimizer.",
)
@click.option("--result", metavar="NODE", help="With --forward: where the network ends [where its loss begins].")
@click.option("--state", metavar="FILE", type=Place(), help="With --forward: trained weights, from boost-run --save.")
@click.option("--batch-size", type=BatchSize(), help="With --forward: how many samples it takes [as in training].")
@click.option("--memory", is_flag=True, help="What a session will have in memory, estimated (with summary or json).")
@click.option("--doctor", is_flag=True, help="What is probably wrong, with the remedy: exit 1 if anything is.")
@click.option("--data", metavar="FILE.npz", type=Place(), help="With --doctor: look at this training data too.")
@click.option("--check", is_flag=True, help="Also read all state, and compare it with its checksums.")
@click.option("--force", is_flag=True, help="Replace FILE of -o though it is of another kind.")
@click.version_option(package_name="boost-compile")
def command(
    file: str,
    format_: str | None,
    output: str | None,
    graph_name: str | None,
    scope: str | None,
    around: str | None,
    radius: int,
    original: str | None,
    annotations: bool,
    open_: bool,
    other: str | None,
    computation: bool,
    dimensions: dict[str, int],
    standard: bool,
    forward: bool,
    result: str | None,
    state: str | None,
    batch_size: int | str | None,
    memory: bool,
    doctor: bool,
    data: str | None,
    check: bool,
    force: bool,
) -> None:
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
    onnx            one graph for Netron; with --standard the network, to run
    mindir          with --forward: the network for MindSpore's own runtimes
    model-explorer  for Google's Model Explorer (--open starts it)
    html            a report in one file: passes, before and after, memory

    Every format shows the network of a training graph with --forward; --standard does so by itself.
    """
    chosen = _format(format_, output, memory)
    for given, flag, needs in (
        (original, "--original", "html"),
        (open_, "--open", "model-explorer"),
        (standard, "--standard", "onnx"),
    ):
        if given and chosen != needs:
            raise click.UsageError(f"{flag} goes with --format {needs}, not with {chosen}")
    if annotations and chosen not in ("text", "anatomy", "seeds"):
        raise click.UsageError(f"--annotations goes with --format text, anatomy or seeds, not with {chosen}")
    if other is not None:
        if graph_name or scope or around:
            raise click.UsageError("--diff compares whole programs: leave out --graph, --scope and --around")
        chosen = "text" if chosen == "summary" else chosen
        if output is not None and output != "-":
            check_output(output, (file, other), force=force, recognised=chosen != "text")
        if check:
            raise click.UsageError("--check goes without --diff: check each file by itself")
        _diff(file, other, chosen, output, computation, dimensions)
    elif computation:
        raise click.UsageError("--computation goes with --diff")
    if memory and chosen not in ("summary", "json"):
        raise click.UsageError(f"--memory goes with --format summary or json, not with {chosen}")
    if memory and (graph_name or scope or around):
        raise click.UsageError("--memory is that of whole programs: leave out --graph, --scope and --around")
    if data is not None and not doctor:
        raise click.UsageError("--data goes with --doctor")
    if doctor:
        if chosen not in ("summary", "json"):
            raise click.UsageError(f"--doctor goes with --format summary or json, not with {chosen}")
        if memory or forward or standard or graph_name or scope or around or other is not None:
            raise click.UsageError("--doctor looks at the whole program: leave out what selects or shows parts of it")
    forward = forward or standard
    if forward and (graph_name or original or other is not None):
        raise click.UsageError("--forward shows one graph, the network: leave out --graph, --original and --diff")
    if standard and (scope or around):
        raise click.UsageError("--standard writes the network: leave out --scope and --around (see --result)")
    for wanted, flag in ((result, "--result"), (state, "--state"), (batch_size, "--batch-size")):
        if wanted is not None and not forward:
            raise click.UsageError(f"{flag} goes with --forward")
    if chosen == "mindir" and not forward:
        raise click.UsageError("a MindIR of the network: add --forward (boost-compile -o writes the whole program)")
    if chosen == "mindir" and not (output or "").endswith(".mindir"):
        raise click.UsageError("a MindIR is no text: give a file with -o FILE.mindir")
    if chosen == "onnx" and output is None:
        raise click.UsageError("an ONNX model is no text: give a file with -o FILE.onnx")
    if original is not None and (graph_name or scope or around):
        raise click.UsageError("--original compares whole programs: leave out --graph, --scope and --around")
    cli.pause_collector()
    if output is not None and output != "-":
        check_output(output, (file, original, state), force=force, recognised=chosen not in ("summary", *ANALYSES))
    from .views.selection import chosen as chosen_nodes
    from .views.selection import narrowed, only_graph
    from .views.shown import shown

    program = cli.read_program(file, dimensions)
    if check:
        from ..ir.formats.storage.load import check_state

        check_state(program)
    if forward:
        from .views.forward import forward as forward_of

        network = forward_of(program, result, state, batch_size, runs=not standard)
        if standard or chosen == "mindir":
            assert output is not None
            click.echo(f"exported {_written(network, output, standard)}")
            return
        if output not in (None, "-"):
            click.echo(f"exported {network}")
        program = network.program
    if doctor:
        _doctor(program, data, chosen, output)
    if memory:
        _memory(program, file, chosen, output)
        _say_written(output)
        return
    if graph_name is not None:
        program = only_graph(program, graph_name, file)
    whole = shown(program, file)
    if chosen in ANALYSES:
        from .views.analyses import print_analysis

        nodes, _ = chosen_nodes(whole, scope, around, radius)
        _write(print_analysis(whole, chosen, nodes, full=annotations), output)
        _say_written(output)
        return
    view = narrowed(whole, scope, around, radius)
    if chosen == "html":
        from .verification.stored import read_verification
        from .views.original import read_original
        from .views.report import html_of

        view.verification = read_verification(Path(file))
        page = html_of(view, read_original(original, program, file, dimensions) if original else None, original or "")
        _write(page, output, page=True)
    else:
        _show(view, chosen, output, annotations, open_)
    _say_written(output)


def _format(given: str | None, output: str | None, memory: bool) -> str:
    """What to show: as --format says, or as -o ends. Both must agree, so that no text lands in a file of a picture."""
    if output is None or output == "-":
        return given or "summary"
    if given is None:
        chosen = check_suffix(output, SUFFIXES)
        return "summary" if memory and chosen == "text" else chosen
    suffixes = NAMED_LIKE.get(given) or tuple(s for s, format_ in SUFFIXES.items() if format_ == given)
    if suffix_of(output) not in ("", *suffixes):
        named = "a folder, without a suffix" if given == "python" else f"a name that ends with {' or '.join(suffixes)}"
        raise click.UsageError(f"'{output}' is not named like {given}: give {named}")
    return given


def _written(network: Evaluation, output: str, standard: bool) -> Evaluation:
    if standard:
        from .views.onnx import write_standard_onnx

        return write_standard_onnx(network, output)
    from ..ir.formats.storage.save import save

    save(network.program, output)
    return network


def _memory(program: Program, file: str, format_: str, output: str | None) -> None:
    from .views.memory_table import print_memory
    from .views.shown import shown

    document = shown(program, file).memory().to_json()
    if format_ == "json":
        _write(cli.json_text(document), output)
    else:
        with cli.console_to(output) as out:
            print_memory(document, out)


def _doctor(program: Program, data: str | None, format_: str, output: str | None) -> None:
    """Ends with exit status 1 where something is found, 0 where nothing is."""
    from dataclasses import asdict

    from ..runtime.data.sources import read_data
    from .doctor.examination import examine

    found = examine(program, None if data is None else read_data(data))
    if format_ == "json":
        _write(cli.json_text([asdict(finding) for finding in found]), output)
    else:
        looked = " and the data" if data is not None else "; with --data FILE.npz the training data is looked at too"
        lines = [str(finding) for finding in found] or [f"Nothing found in the program{looked}."]
        _write("".join(f"{line}\n" for line in lines), output)
    _say_written(output)
    sys.stdout.flush()
    raise click.exceptions.Exit(1 if found else 0)


def _show(view: Shown, format_: str, output: str | None, annotations: bool, open_: bool) -> None:
    if format_ in ("summary", "json"):
        from .views.summary import describe, print_summary

        document = describe(view)
        if format_ == "json":
            _write(cli.json_text(document), output)
        else:
            with cli.console_to(output) as out:
                print_summary(document, out)
    elif format_ == "text":
        from .views.text import highlighted, text_of

        whole = output not in (None, "-")
        text = text_of(view, annotations or whole, data=whole)
        _write(highlighted(text) if not whole and cli.wants_colour(sys.stdout) else text, output)
    elif format_ == "dot":
        from .views.dot import dot_of

        _write(dot_of(view), output)
    elif format_ == "svg":
        from .views.dot import svg_of

        _write(svg_of(view), output)
    elif format_ == "python":
        from .views.python import source_of, write_python_of

        if output in (None, "-"):
            _write(source_of(view.program), output)
        else:
            assert output is not None
            write_python_of(view.program, output)
    elif format_ == "onnx":
        from .views.onnx import write_onnx_of

        assert output is not None
        write_onnx_of(view, output)
    else:
        from .views.model_explorer import document_of, open_viewer

        text = json.dumps(document_of(view), ensure_ascii=False, separators=(",", ":")) + "\n"
        if open_:
            open_viewer(text, output)
        else:
            _write(text, output)


def _diff(a: str, b: str, format_: str, output: str | None, computation: bool, sizes: dict[str, int]) -> NoReturn:
    """Exits with 1 when the programs differ, with 0 when they do not, with 2 when that cannot be told."""
    from .views.diff_view import FORMATS as DIFF_FORMATS
    from .views.diff_view import diff_as

    if format_ not in DIFF_FORMATS:
        raise click.UsageError(f"--diff goes with --format {', '.join(DIFF_FORMATS)}, not with {format_}")
    cli.pause_collector()
    from ..ir.analysis.compare.diff import diff
    from ..ir.core.errors import Error

    try:
        # Sizes are for those of the files that leave some open.
        models = [path for path in (a, b) if path.endswith(".onnx")] or [a]
        one, two = (cli.read_program(path, sizes if path in models else None) for path in (a, b))
        found = diff(one, two, computation=computation)
        colour = output is None and cli.wants_colour(sys.stdout)
        width = cli.terminal_width() if output is None and sys.stdout.isatty() else None
        text = diff_as(found, format_, a, b, colour=colour, width=width)
    except (Error, OSError):
        raise
    except Exception as bug:  # its usual status, 1, would say that the programs differ
        raise cli.Ended(cli.BAD_INPUT, f"internal: {type(bug).__name__}: {bug} (a bug: please report it)") from bug
    _write(text, output, page=format_ == "html")
    _say_written(output)
    sys.stdout.flush()
    raise click.exceptions.Exit(1 if found else 0)


def _write(text: str, output: str | None, *, page: bool = False) -> None:
    """``page``: HTML, whose names are harmless by themselves. Not a character of it may change: its policy knows its
    scripts by hash."""
    text = text if page else cli.harmless(text)
    if output is None or output == "-":
        sys.stdout.write(text)
        return
    from ..ir.files.atomic import replacing_file

    with replacing_file(Path(output)) as stream:
        stream.write(text.encode())


def _say_written(output: str | None) -> None:
    if output is not None and output != "-":
        click.echo(f"Wrote {cli.safe(output)}.")


def main() -> None:
    cli.main(command)


if __name__ == "__main__":
    main()
