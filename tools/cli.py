"""Shared parts of the commands: how they start, fail and print. Imports only click; the rest comes in when it is
needed."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from . import interruption
from .command import complete_in_a_shell, option

if TYPE_CHECKING:
    from rich.console import Console

    from ..ir.core.program import Program
    from .tables import Table

BAD_INPUT, INTERNAL_FAILURE = 2, 1
READER_GONE = 128 + 13
"""As a shell says of a process that SIGPIPE ended."""
TRACEBACK = "BOOST_COMPILE_TRACEBACK"
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\x1b(?!\[[0-9;]*m)"
)
FOLD = 5
"""How many of many similar lines a report shows."""


Fail = Callable[[str, int, str], NoReturn]
"""Ends a command that failed: its name, the exit code, the message."""


class Ended(Exception):
    """An end with an exit code of its own."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


def fail(name: str, code: int, message: str) -> NoReturn:
    """Says so on stderr, in colour and with hanging lines if it is a terminal, and exits."""
    interruption.finish()
    text = f"{name}: error: {safe(message)}"
    if wants_colour(sys.stderr):
        head = f"{name}: error:"
        if code != interruption.RESUMABLE:  # that ends with a command, which is copied
            text = hanging(text, terminal_width())
        text = f"\x1b[1;31m{head}\x1b[0m{text[len(head) :]}"
    try:
        print(text, file=sys.stderr)
    except BrokenPipeError:
        _leave_unread(sys.stderr)
    sys.exit(code)


def _leave_unread(*streams: TextIO) -> None:
    """Where a reader went away: Python flushes its streams once more at exit, and that must not raise again."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def terminal_width() -> int:
    """Columns of the terminal; 80 where that cannot be told."""
    import shutil

    return shutil.get_terminal_size().columns


CODE = 4
"""Lines that are indented by so much are code, which users copy."""


def hanging(text: str, width: int, code: int | None = CODE) -> str:
    """``text`` in lines of at most ``width`` columns, broken between words; what a line continues on is indented by two
    more than it. A word that is longer than a line stays whole, and so does a line of code, which is indented by
    ``code``."""
    import textwrap

    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if code is not None and len(indent) >= code:
            lines.append(line)
            continue
        lines += textwrap.wrap(
            line.lstrip(), max(width, len(indent) + 20), initial_indent=indent, subsequent_indent=f"{indent}  ",
            break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip
    return "\n".join(lines)


def safe(message: str) -> str:
    """A message for a terminal: names from files may hold escape sequences and line breaks. All lines but the first
    are indented, so none that a name brings along passes for a message of its own."""
    from ..ir.core.naming import printable

    first, *others = message.split("\n")
    return "\n".join([printable(first), *(printable(_indented(line)) for line in others)])


def _indented(line: str) -> str:
    return line if not line or line.startswith("  ") else f"  {line}"


def harmless(text: str) -> str:
    """A whole text for a terminal or a file, whatever names it holds: colours stay, other control characters and those
    that turn the direction of writing are spelled out, as JSON and JavaScript do."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escape(text: str) -> str:
    """Text for rich: no markup, nothing that does not print but line breaks."""
    from rich import markup

    from ..ir.core.naming import printable

    return markup.escape("\n".join(map(printable, text.split("\n"))))


def main(command: click.Command) -> NoReturn:
    """Runs a command as this process: from now on ctrl-C and SIGTERM end it with one line, whatever MindSpore does."""
    interruption.listen(command.name or "boost-compile")
    run(command)


def run(command: click.Command, arguments: Sequence[str] | None = None, fail: Fail = fail) -> NoReturn:
    """Runs a command and exits: 0 done, 2 bad input or options, 1 a failure of ours, 130 interrupted.

    Errors are one message on stderr. A reader that goes away (``| head``) is no error, but exit code 141, and nor is an
    output that is closed (``>&-``). A command finds its arguments as the context's ``obj``.
    """
    name = command.name or "boost-compile"
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What the terminal's encoding does not have is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    complete_in_a_shell(command, name)
    try:
        # Not command.main: it would turn a closed pipe into exit code 1, which here means a bug.
        code = _invoke(command, name, given)
        sys.stdout.flush()
        interruption.finish()
        sys.exit(code)
    except click.ClickException as error:
        fail(name, BAD_INPUT, f"{error.format_message()} (see {name} --help)")
    except (KeyboardInterrupt, click.Abort):
        if interruption.listening():
            interruption.leave()
        fail(name, interruption.EXIT_CODE, "interrupted")
    except Ended as end:
        fail(name, end.code, str(end))
    except BrokenPipeError:
        _leave_unread(sys.stdout, sys.stderr)
        sys.exit(READER_GONE)
    except Exception as error:
        _report(name, error, fail)


def _open_closed_streams() -> None:
    """What a shell closed takes what is written, and its number is no other file's: libraries write to 1 and 2."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (open as long as the process)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _invoke(command: click.Command, name: str, given: list[str]) -> int:
    """Runs a command and returns its exit code."""
    try:
        with command.make_context(name, list(given), obj=given) as context:
            command.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0


def _report(name: str, error: Exception, fail: Fail) -> NoReturn:
    from ..ir.core.errors import Error, VerifyError

    internal: tuple[type[Exception], ...] = ()
    if "boost_compile.passes.framework.manager" in sys.modules:
        from ..passes.framework.manager import BrokenProgram, InternalError

        internal = (BrokenProgram, InternalError)
    if os.environ.get(TRACEBACK):
        raise error
    if isinstance(error, internal):
        fail(name, INTERNAL_FAILURE, f"internal: {error}\n  please report this, with that file")
    if isinstance(error, VerifyError):
        fail(name, BAD_INPUT, f"the graph is not valid: {error.at_command()}")
    if isinstance(error, Error):
        fail(name, BAD_INPUT, error.at_command())
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        fail(name, BAD_INPUT, f"{error.filename}: {what}" if error.filename else what)
    if isinstance(error, MemoryError):
        fail(name, BAD_INPUT, "out of memory: the input needs more than there is")
    message = f"internal: {type(error).__name__}: {error} (a bug; set {TRACEBACK}=1 to see where, and please report it)"
    fail(name, INTERNAL_FAILURE, message)


def console(*, stderr: bool = False) -> Console:
    """rich's console; plain text, and wide, when the stream is no terminal."""
    from rich import console as rich

    class Console(rich.Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich itself would exit with 1, which is an answer of some commands

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, emoji=False, width=None if stream.isatty() else 160)


@contextmanager
def console_to(output: str | None) -> Iterator[Console]:
    """rich's console on standard output, or writing plain text to a file, which is whole or not there."""
    if output is None or output == "-":
        yield console()
        return
    from rich.console import Console

    text = io.StringIO()
    yield Console(file=text, highlight=False, emoji=False, width=160)
    write_text(text.getvalue(), output)


def write_text(text: str, output: str | None) -> None:
    """To standard output (None, ``-``), or to a file, which is whole or not there."""
    if output is None or output == "-":
        sys.stdout.write(text)
        sys.stdout.flush()  # a reader that went away is noticed here, before any report
        return
    from pathlib import Path

    from ..ir.files.atomic import replacing_file

    with replacing_file(Path(output)) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))


def wants_colour(stream: TextIO) -> bool:
    """Whether the stream is a terminal whose user has not asked for no colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def table(title: str, *columns: str, numbers: Sequence[str] = ()) -> Table:
    """An empty table; the columns named in ``numbers`` stand flush right."""
    from .tables import Table

    return Table(title, columns, numbers)


def print_lowered(
    program: Program, target: str, *, annotations: bool = False, ranks: int = 1, seed: int | None = None
) -> None:
    """Prints the graphs that the runtime hands to MindSpore, of the first of ``ranks``, on stderr."""
    from ..runtime.lowering.context import Context
    from ..runtime.lowering.lower import print_lowered

    context = Context(program, target, ranks=ranks, seed=seed)
    sys.stderr.write(harmless(print_lowered(context, annotations)))


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    from ..ir.files.json_text import json_text

    sys.stdout.write(harmless(json_text(document)))


def folded(lines: Sequence[str], limit: int = FOLD, listing: str = "--json") -> list[str]:
    """The first few lines, and how many more there are, which ``listing`` shows if anything does."""
    if len(lines) <= limit + 1:
        return list(lines)
    more = f"… and {len(lines) - limit} more"
    return [*lines[:limit], f"{more} ({listing} lists all)" if listing else more]


def pause_collector() -> None:
    """Python's cyclic garbage collector would walk every graph again and again, and graphs are all cycles.

    For commands that read, rewrite, write and exit.
    """
    import gc

    gc.disable()


def read_program(path: str, dimensions: Mapping[str, int] | None = None) -> Program:
    """The program in a MindIR file, an ONNX model, a program directory, a text file (``.ir``, ``.txt``), or text on
    stdin (``-``). ``dimensions``: sizes that an ONNX model leaves open."""
    from ..ir.formats.storage.load import load, load_text

    if path == "-":
        return load_text(sys.stdin.buffer.read(), "standard input", dimensions)
    return load(path, dimensions)


def _dimensions(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    given = {}
    for value in values:
        name, equals, size = value.rpartition("=")
        if not equals or not size.isdecimal() or not 0 < int(size) < 2**31:
            raise click.BadParameter(f"'{value}': give NAME=SIZE, such as batch=8", context, option)
        given[name] = int(size)
    return given


def dimensions_option() -> Any:
    """``--dim``, a field of a job."""
    text = "The size of a dimension that an ONNX model leaves open."
    return option(text, "--dim", multiple=True, metavar="NAME=SIZE", callback=_dimensions)


def check_writable(output: str) -> None:
    """Finds out before the work, not after it, that the result has no place to go."""
    from ..ir.core.errors import OptionError

    directory = os.path.dirname(os.path.abspath(output))
    if not os.path.isdir(directory):
        raise OptionError(f"cannot write '{output}': there is no directory '{os.path.dirname(output)}'")
    if not os.access(directory, os.W_OK):
        raise OptionError(f"cannot write '{output}': its directory is not writable; choose another")


def check_storable(program: str, result: str, without: str) -> None:
    """Finds out before the work that a program directory cannot take the file ``result``; ``without`` says how the
    command does without it."""
    from ..ir.core.errors import OptionError

    if os.path.isdir(program) and not os.access(program, os.W_OK):
        raise OptionError(
            f"{program}: this folder is not writable, so {result} cannot be put into it.", command=without
        )
