"""boost-compile --config and --level: documents of our own, those of mindspore.boost, and what the flags add."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.formats.storage.load import load
from boost_compile.passes import REGISTRY, NoMatchWarning, Pass, option, parse_pipeline
from boost_compile.passes.configuration.configuration import read_configuration
from boost_compile.tools.compile import DEFAULT_PIPELINE, command

import boost_compile as bc

from .support import Shell, assert_one_error, process, shell

Compile = Callable[..., Shell]
FREEZE = {
    "boost": {"mode": "manual", "grad_freeze": True, "grad_accumulation": True},
    "grad_accumulation": {"grad_accumulation_step": 4},
}
"""A document of mindspore.boost that asks for what exists."""


class Everything(Pass):
    """Has options of all kinds."""

    name = "everything"
    steps: int = option(help="without a default", minimum=1)
    factor: float = option(0.5, help="")
    flag: bool = option(False, help="")
    names: tuple[str, ...] = option((), help="")
    limit: int | None = option(3, help="")
    kind: str = option("a", help="", choices=("a", "b"))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, Everything.name, Everything)


@pytest.fixture
def compile_(here: Path, capsys: pytest.CaptureFixture[str]) -> Compile:
    return lambda *arguments: shell(capsys, command, *arguments)


def write(name: str, content: str | dict[str, Any]) -> str:
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content))
    return name


def options(text: str) -> dict[str, dict[str, Any]]:
    return {p.name: p.options() for p in parse_pipeline(text)}


# -- documents of our own --------------------------------------------------------------------------------------

TOML = """
target = "gpu"

[[pipeline]]
pass = "everything"
steps = 2
factor = 1  # an integer serves as a number
flag = true
names = ["x", "a b"]
kind = "b"

[[pipeline]]
pass = "dead-code-elimination"
"""
AS_JSON = {
    "target": "gpu",
    "pipeline": [
        {"pass": "everything", "steps": 2, "factor": 1, "flag": True, "names": ["x", "a b"], "kind": "b"},
        {"pass": "dead-code-elimination"},
    ],
}
AS_TEXT = 'everything{steps=2,factor=1.0,flag=true,names=[x,"a b"],kind=b},dead-code-elimination'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mine.toml", TOML),
        ("mine.json", AS_JSON),
        ("text.json", {"target": "gpu", "pipeline": AS_TEXT}),
        ("text.TOML", f"target = 'gpu'\npipeline = '{AS_TEXT}'\n"),
        ("lines.toml", "target = 'gpu'\npipeline = '''\n" + AS_TEXT.replace("},", "},\n  ") + "\n'''\n"),
        ("bom.json", "\ufeff" + json.dumps(AS_JSON)),
    ],
)
def test_tables_and_text_in_both_languages_mean_the_same(name: str, content: Any, here: Path) -> None:
    found = read_configuration(write(name, content))
    assert found.passes == parse_pipeline(AS_TEXT)
    assert found.target == "gpu"
    assert found.notes == ()


@pytest.mark.parametrize(
    "text", ["everything{steps=1,names=[lion{lr=0.01}]}", 'everything{steps=1,names=["lion{lr=0.01}"]}']
)
def test_options_of_an_option_need_no_quotes(text: str, here: Path) -> None:
    table = {"pipeline": [{"pass": "everything", "steps": 1, "names": ["lion{lr=0.01}"]}]}
    found = [read_configuration(write(*file)) for file in (("a.json", {"pipeline": text}), ("b.json", table))]
    assert found[0].passes == found[1].passes == parse_pipeline(text)


def test_the_examples_of_the_guide(here: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    blocks = re.findall(r"```(toml|json)\n(.*?)```", guide, re.DOTALL)
    found = [read_configuration(write(f"example.{language}", text)) for language, text in blocks]
    assert [language for language, _ in blocks] == ["toml", "json"]
    assert (
        found[0].passes == found[1].passes == parse_pipeline("gradient-accumulation,overflow-check{policy=skip-micro}")
    )


def test_null_is_none(here: Path) -> None:
    found = read_configuration(write("a.json", {"pipeline": [{"pass": "everything", "steps": 1, "limit": None}]}))
    assert found.passes == [Everything(steps=1, limit=None)]


@pytest.mark.parametrize(
    ("document", "fragments"),
    [
        ({"pipline": ""}, ["unknown key 'pipline' (did you mean 'pipeline'?)"]),
        ({"pipeline": "", "traget": "cpu"}, ["unknown key 'traget' (did you mean 'target'?)"]),
        ({"pipeline": "", "less_bn": {}}, ["unknown key 'less_bn' (known: pipeline, target)"]),
        ({"target": "npu"}, ["target cannot be \"npu\""]),
        ({"target": "cpus"}, ["target cannot be \"cpus\" (did you mean 'cpu'?)"]),
        ({"pipeline": 4}, ["pipeline must be a string or a list, not 4"]),
        ({"pipeline": "everything{steps=0}"}, ["pipeline: pass 'everything': option 'steps' must be at least 1", "^"]),
        ({"pipeline": ["dead-code-elimination"]}, ["pipeline[0] must be a table, not \"dead-code-elimination\""]),
        ({"pipeline": [{"steps": 4}]}, ["pipeline[0] lacks 'pass'"]),
        ({"pipeline": [{"pass": 4}]}, ["pipeline[0].pass must be a string, not 4"]),
        ({"pipeline": [{"pass": "everythin"}]}, ["pipeline[0].pass: unknown pass 'everythin' (did you mean"]),
        ({"pipeline": [{"pass": "everything"}]}, ["pipeline[0]: pass 'everything' needs option steps"]),
        ({"pipeline": [{"pass": "everything", "step": 4}]}, ["pipeline[0].step: ", "did you mean 'steps'?"]),
        ({"pipeline": [{"pass": "dead-code-elimination", "x": 1}]}, ["pipeline[0].x: ", "it has none"]),
        ({"pipeline": [{"pass": "everything", "steps": "4"}]}, ["pipeline[0].steps: ", "must be of type int"]),
        ({"pipeline": [{"pass": "everything", "steps": True}]}, ["pipeline[0].steps: ", "must be of type int"]),
        ({"pipeline": [{"pass": "everything", "steps": 1, "kind": "c"}]}, ["pipeline[0].kind: ", "cannot be c"]),
        ({"pipeline": [{"pass": "everything", "steps": 1, "names": 3}]}, ["pipeline[0].names: ", "list of str"]),
        ({}, ["the document is empty", "'pipeline'", "less_bn"]),
    ],
)  # fmt: skip
def test_a_wrong_document_is_one_error_with_its_path(
    document: dict[str, Any], fragments: list[str], compile_: Compile
) -> None:
    done = compile_("--dump-pipeline", "--config", write("mine.json", document))
    assert_one_error(done, "boost-compile", "mine.json: ", *fragments)


def test_options_that_do_not_go_together(compile_: Compile) -> None:
    done = compile_("--dump-pipeline", "--config", write("a.json", {"pipeline": [{"pass": "less-bn", "scope": "*"}]}))
    assert_one_error(done, "boost-compile", "a.json: pipeline[0]: ", "belong together")


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("a.json", '{"pipeline": ', "not valid JSON"),
        ("a.json", '{"target": "cpu", "target": "gpu"}', "the key 'target' is given twice"),
        ("a.json", "[]", "must be a table (an object), not a list"),
        ("a.json", "[" * 200_000, "a.json: "),
        ("a.toml", "target = ", "not valid TOML"),
        ("a.toml", "target = 'cpu'\ntarget = 'gpu'", "not valid TOML"),
        ("a.yaml", "target: cpu", "a .json or a .toml file"),
        ("a", "", "a .json or a .toml file"),
    ],
)
def test_a_file_that_is_none(name: str, content: str, fragment: str, compile_: Compile) -> None:
    assert_one_error(compile_("--dump-pipeline", "--config", write(name, content)), "boost-compile", name, fragment)


def test_bytes_that_are_no_text(compile_: Compile) -> None:
    Path("a.json").write_bytes(b"\xff\xfe\x00")
    assert_one_error(compile_("--dump-pipeline", "--config", "a.json"), "boost-compile", "a.json: not valid JSON")


def test_a_missing_file(compile_: Compile) -> None:
    assert_one_error(compile_("--dump-pipeline", "--config", "none.json"), "boost-compile", "none.json: No such file")


# -- documents of mindspore.boost ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["boost.json", "boost.toml"])
def test_the_keys_tell_a_document_of_boost(name: str, compile_: Compile) -> None:
    toml = """
        [boost]
        mode = "manual"
        grad_freeze = true
        grad_accumulation = true
        [grad_accumulation]
        grad_accumulation_step = 4
    """
    done = compile_("--dump-pipeline", "--config", write(name, toml if name.endswith("toml") else FREEZE))
    assert done.code == 0
    dumped = options(done.out.strip())
    assert list(dumped) == ["gradient-accumulation", "gradient-freeze"]
    assert dumped["gradient-accumulation"]["steps"] == 4
    assert dumped["gradient-freeze"]["groups"] == 10
    assert done.err.startswith(f"Note: {name}: grad_freeze works with grad_accumulation")
    assert compile_("--dump-pipeline", "-q", "--config", name).err == ""


def test_level_zero_only_cleans_up(compile_: Compile) -> None:
    done = compile_("--dump-pipeline", "--level", "O0")
    assert (done.out.strip(), done.err) == (DEFAULT_PIPELINE, "")


def test_a_level_and_a_document_of_boost(compile_: Compile) -> None:
    only = write("flags.json", {"less_bn": {"fn_flag": False, "gc_flag": False}, "grad_freeze": {"freeze_p": 0.25}})
    done = compile_("--dump-pipeline", "--level", "O1", "--config", only)
    dumped = options(done.out.strip())
    assert list(dumped) == ["less-bn", "gradient-freeze"]
    assert dumped["gradient-freeze"]["probability"] == 0.25


def test_a_level_that_does_not_exist(compile_: Compile) -> None:
    assert_one_error(compile_("--dump-pipeline", "--level", "O3"), "boost-compile", "O3")


def test_a_level_does_not_go_with_a_pipeline(compile_: Compile) -> None:
    done = compile_("--dump-pipeline", "--level", "O1", "--config", write("mine.toml", TOML))
    assert_one_error(done, "boost-compile", "mine.toml: a level belongs to a document of mindspore.boost")


# -- together with the command line ----------------------------------------------------------------------------


def test_flags_and_passes_come_after_the_document(compile_: Compile) -> None:
    config = write("a.json", {"pipeline": "everything{steps=2},dead-code-elimination"})
    done = compile_("--dump-pipeline", "--config", config, "--check-overflow", "-p", "common-subexpression-elimination")
    expected = ["everything", "dead-code-elimination", "overflow-check", "common-subexpression-elimination"]
    assert list(options(done.out.strip())) == expected
    assert done.err == ""


@pytest.mark.parametrize("flags", [["--accumulate", "8"], ["-p", "gradient-accumulation{steps=8}"]])
def test_the_command_line_replaces_what_the_document_gives_too(flags: list[str], compile_: Compile) -> None:
    config = write("a.json", {"pipeline": "gradient-accumulation{steps=4,split=fused},overflow-check"})
    done = compile_("--dump-pipeline", "--config", config, *flags)
    passes = parse_pipeline(done.out.strip())
    assert sorted(p.name for p in passes) == ["gradient-accumulation", "overflow-check"]
    assert next(p for p in passes if p.name == "gradient-accumulation").options()["steps"] == 8
    assert done.err.startswith("Note: a.json: the command line replaces 'gradient-accumulation?{steps=4,")
    assert done.err.count("Note") == 1


def test_the_same_pass_from_both_is_run_once_and_needs_no_note(compile_: Compile) -> None:
    config = write("a.json", {"pipeline": "overflow-check"})
    done = compile_("--dump-pipeline", "--config", config, "--check-overflow")
    assert len(parse_pipeline(done.out.strip())) == 1
    assert done.err == ""


def test_clean_ups_may_come_from_both(compile_: Compile) -> None:
    config = write("a.json", {"pipeline": "dead-code-elimination,overflow-check"})
    done = compile_("--dump-pipeline", "--config", config, "-p", "dead-code-elimination")
    assert [p.name for p in parse_pipeline(done.out.strip())].count("dead-code-elimination") == 2
    assert done.err == ""


SMALL = """
state %w: float32[2]<1.0, 2.0> role=weight
graph @step(%x: float32[2]) -> (loss) {
  %read = Load(%w, umonad)
  %dead = Exp(%x) : float32[2]
  %sum = Add(%x, %read)
  return %sum
}
"""


def test_the_document_sets_the_target_and_the_command_line_another(compile_: Compile) -> None:
    write("small.ir", SMALL)
    config = write("a.toml", "target = 'gpu'\npipeline = 'dead-code-elimination'")
    done = compile_("small.ir", "--config", config, "-o", "a.boost")
    assert (done.code, done.err) == (0, "")
    written = load("a.boost")
    assert (written.target, written.pipeline) == ("gpu", "dead-code-elimination")
    done = compile_("small.ir", "--config", config, "--target", "ascend", "-o", "b.boost")
    assert load("b.boost").target == "ascend"
    assert "Note: a.toml: --target ascend replaces target 'gpu'" in done.err
    done = compile_("small.ir", "--config", write("only.toml", "target = 'gpu'"), "-o", "c.boost")
    assert (load("c.boost").target, load("c.boost").pipeline) == ("gpu", DEFAULT_PIPELINE)


TRAINED = """
state %w: float32[2]<1.0, 2.0> role=weight
state %rate: float32[]<0.5> role=hyperparameter
graph @step(%x: float32[2]) -> (loss) {
  %read = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
  %y = Mul(%x, %read) : float32[2] primal {unique_id = "2"}
  %loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "3"}
  %seed = OnesLike(%y) : float32[2] primal {forward_unique_id = "3"}
  %gradient = Mul(%seed, %x) : float32[2] primal {forward_unique_id = "2"}
  %wait = UpdateState(umonad, %y)
  %done = ApplyGradientDescent(%w, %rate, %gradient, %wait) : float32[2]
  %end = UpdateState(%wait, %done)
  %out = Depend(%loss, %end)
  return %out
}
"""


def test_what_a_document_or_a_level_asks_for_may_match_nothing(compile_: Compile) -> None:
    write("small.ir", TRAINED)
    config = write("a.json", {"pipeline": [{"pass": "less-bn"}, {"pass": "dead-code-elimination"}]})
    done = compile_("small.ir", "--config", config, "-o", "a.boost")
    assert (done.code, done.err) == (0, "")
    assert "Warning: less-bn matched nothing (it is optional)." in done.out
    assert "step: the forward part has no BatchNorm" in done.out
    assert [r.name for r in load("a.boost").reports] == ["less-bn", "dead-code-elimination"]
    done = compile_("small.ir", "--config", config, "-p", "less-bn", "-o", "b.boost")
    assert_one_error(done, "boost-compile", "pass 'less-bn' matched nothing", "write 'less-bn?'")
    assert not Path("b.boost").exists()


def test_a_level_serves_a_network_without_residual_blocks(exported: Callable[[str], Path], compile_: Compile) -> None:
    """LeNet with BatchNorms: nothing for less-bn, all else is done."""
    done = compile_(exported("lenet_bn"), "--level", "O1", "-o", "a.boost", "-q")
    assert (done.code, done.out, done.err) == (0, "", "")
    changed = {r.name: r.changed > 0 for r in load("a.boost").reports}
    assert [name for name in changed if not changed[name]] == ["less-bn"]
    assert changed["normalised-head"]
    assert changed["gradient-freeze"]
    source = bc.load(exported("lenet_bn"))
    with pytest.warns(NoMatchWarning, match=r"'less-bn' matched nothing \(.*not inside a residual block"):
        bc.compile(source, bc.from_boost_config({"boost": {"mode": "manual", "less_bn": True}}))
    with pytest.warns(NoMatchWarning):
        assert not bc.compile(source, "less-bn", allow_no_match=True).reports[0].changed
    with pytest.raises(bc.Error, match="matched nothing"):
        bc.compile(source, "less-bn")


def test_an_empty_pipeline_does_nothing_and_is_none_of_the_default(compile_: Compile) -> None:
    write("small.ir", SMALL)
    done = compile_("small.ir", "--config", write("a.json", {"pipeline": []}), "-o", "a.boost")
    assert "No passes given" not in done.out
    assert load("a.boost").pipeline == ""


@pytest.mark.filterwarnings("ignore::boost_compile.passes.configuration.boost_document.BoostNote")
def test_the_command_writes_what_python_compiles(exported: Callable[[str], Path], here: Path) -> None:
    source = exported("lenet_bn")
    done = process("compile", source, "--config", write("boost.json", FREEZE), "-o", "a.boost", "--json")
    assert done.code == 0, done.err
    program = bc.compile(bc.load(source), bc.from_boost_config("boost.json"))
    assert load("a.boost").pipeline == program.pipeline
    assert [p["name"] for p in json.loads(done.out)["passes"]] == ["gradient-accumulation", "gradient-freeze"]
