"""Bad input: one clear error on stderr, exit code 2, and nothing left behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from boost_compile.tools.compile import command
from boost_compile.tools.inspect import command as inspect_command

from .support import assert_one_error, shell

# The smallest JPEG there is: its markers suffice.
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xd9"

GOOD = "graph @step(%x: float32[2]) {\n  %b = Neg(%x)\n  return %b\n}\n"


@pytest.fixture
def refused(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """``refused(arguments, fragments)``: compiling must fail with one error that holds them, and leave no output."""

    def check(arguments: tuple[object, ...], *fragments: str) -> None:
        before = set(here.rglob("*"))
        assert_one_error(shell(capsys, command, *arguments), "boost-compile", *fragments)
        assert set(here.rglob("*")) == before

    return check


Refused = Callable[..., None]


@pytest.fixture
def good(here: Path) -> str:
    (here / "good.ir").write_text(GOOD)
    return "good.ir"


def write(here: Path, name: str, data: bytes) -> str:
    (here / name).write_bytes(data)
    return name


# -- files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999, 1.0])
def test_truncated(share: float, here: Path, refused: Refused, exported: Callable[[str], Path]) -> None:
    whole = exported("mlp").read_bytes()
    write(here, "cut.mindir", whole[: min(int(len(whole) * share), len(whole) - 1)])
    refused(("cut.mindir",), "cut.mindir")


UNVERIFIED = GOOD.replace("%b = Neg(%x)", "%b = Neg(%x)\n  %c = Assign(%w, %x, umonad)")


@pytest.mark.parametrize(
    ("name", "data", "fragments"),
    [
        *(("noise.mindir", random.Random(seed).randbytes(5000), ("noise.mindir",)) for seed in range(5)),
        ("photo.mindir", JPEG, ("photo.mindir", "JPEG")),
        *((f"missing.{suffix}", None, (f"missing.{suffix}",)) for suffix in ("mindir", "ir", "boost")),
        ("bad.ir", GOOD.replace("Neg(%x)", "Neg(%y)").encode(), ("bad.ir", "%y")),
        ("bad.ir", JPEG, ("bad.ir: not the text form of a program: it is not UTF-8",)),
        ("bad.ir", f"state %w: float32[2] role=weight\n{UNVERIFIED}".encode(), ("not valid", "%c")),
    ],
)
def test_what_is_no_program(
    name: str, data: bytes | None, fragments: tuple[str, ...], here: Path, refused: Refused
) -> None:
    if data is not None:
        write(here, name, data)
    refused((name,), *fragments)


def test_encrypted(here: Path, refused: Refused, exported: Callable[[str], Path]) -> None:
    import mindspore as ms

    from tests.networks import CASES, build

    case = CASES["mlp"]
    cell = build(case).train_step
    inputs = [ms.Tensor(a) for a in case.batches(1)[0]]
    path = here / "secret.mindir"
    ms.export(cell, *inputs, file_name=str(path), file_format="MINDIR", enc_key=b"0123456789ABCDEF", enc_mode="AES-GCM")
    refused(("secret.mindir",), "secret.mindir", "encrypted")


def test_a_directory_that_is_no_program(here: Path, refused: Refused) -> None:
    (here / "folder").mkdir()
    refused(("folder",), "folder")


# -- options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--passes", "gradient-acumulation"), ("unknown pass", "did you mean 'gradient-accumulation'?")),
        (("--passes", "gradient-accumulation{step=4}"), ("no option 'step'", "did you mean 'steps'?")),
        (("--passes", "gradient-accumulation{steps=0}"), ("'steps' must be at least 1",)),
        (("--passes", "gradient-accumulation{steps=-2}"), ("'steps' must be at least 1",)),
        (("--passes", "gradient-accumulation{steps=1.5}"), ("'steps' must be of type int",)),
        (("--passes", "gradient-accumulation{reduction=avg}"), ("'reduction' cannot be avg",)),
        (("--accumulate", "0"), ("'steps' must be at least 1",)),
        (("--accumulate", "many"), ("--accumulate", "not a valid integer")),
        (("--reduction", "sum"), ("--reduction", "--accumulate")),
        (("--target", "tpu"), ("--target", "'cpu'")),
        (("--emti", "text"), ("No such option", "--emit")),
        (("--emit", "onnx"), ("--emit", "'mindir'")),
        (("-o", "-", "--emit", "mindir"), ("--emit text",)),
        (("-o", "-", "--emit", "text", "--json"), ("both want stdout",)),
        (("-o", "x.mindir", "--emit", "program"), ("x.mindir", "--emit")),
        (("--print-ir-after=negat",), ("cannot print the IR around pass 'negat'",)),
        (("--opt-bisect-limit", "-1"), ("at least 0",)),
        (
            ("--accumulate", "4"),
            ("forward graph", "nn.TrainOneStepCell", "mindspore.export(", "gradient-accumulation"),
        ),
    ],
)
def test_options(arguments: tuple[str, ...], fragments: tuple[str, ...], good: str, refused: Refused) -> None:
    refused((good, *arguments), *fragments)


def test_no_input(refused: Refused) -> None:
    refused((), "INPUT is missing")


# -- outputs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "fragments"),
    [
        ("missing/out.boost", ("cannot write 'missing/out.boost'", "no directory 'missing'")),
        ("/proc/out.boost", ("/proc/out.boost", "writ")),  # not even root writes here
        ("good.ir/out.boost", ("cannot write 'good.ir/out.boost'",)),
    ],
)
def test_where_nothing_can_be_written(output: str, fragments: tuple[str, ...], good: str, refused: Refused) -> None:
    refused((good, "-o", output), *fragments)


def test_output_in_the_place_of_something_else(good: str, here: Path, refused: Refused) -> None:
    (here / "photos").mkdir()
    write(here, "photos/photo.jpg", JPEG)
    refused((good, "-o", "photos"), "photos")
    assert (here / "photos/photo.jpg").read_bytes() == JPEG


# -- the other commands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("missing.mindir",), ("missing.mindir",)),
        (("photo.mindir",), ("photo.mindir", "JPEG")),
        (("good.ir", "--graph", "stpe"), ("has no graph 'stpe'", "did you mean 'step'?")),
        (("good.ir", "--format", "anatomy"), ("forward graph", "nn.TrainOneStepCell")),
        (("good.ir", "--format", "dot", "--annotations"), ("--format text",)),
        (("good.ir", "--diff", "good.ir", "--forward"), ("leave out --graph, --original and --diff",)),
        (("good.ir", "--diff", "good.ir", "--memory"), ("--memory goes with --format summary or json",)),
        (("good.ir", "--diff", "good.ir", "--format", "json", "--doctor"), ("--doctor looks at the whole program",)),
        (("good.ir", "--format", "html", "--original", "good.ir", "--graph", "step"), ("leave out --graph",)),
        (("good.ir", "--format", "onnx"), ("--standard", "model-explorer")),
        (("good.ir", "--format", "onnx", "--standard"), ("-o FILE.onnx",)),
        (("good.ir", "--scope", "nowhere"), ("scope 'nowhere'",)),
        (("good.ir", "--around", "bb"), ("no node '%bb'", "did you mean 'b'?")),
        ((), ("Missing argument",)),
    ],
)
def test_inspect(
    arguments: tuple[str, ...], fragments: tuple[str, ...], good: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here, "photo.mindir", JPEG)
    assert_one_error(shell(capsys, inspect_command, *arguments), "boost-inspect", *fragments)
