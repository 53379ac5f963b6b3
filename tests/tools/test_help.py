"""What the commands say of themselves: help, listings, completions, the module as a command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from boost_compile.tools import compile as compile_command
from boost_compile.tools.help_texts import AUTHORS, EXAMPLES, GROUPS

from tests.advice import COMMANDS

from .support import assert_one_error, shell


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_stands_in_one_group(name: str) -> None:
    listed = [option for options in GROUPS[name].values() for option in options.split()]
    context = click.Context(COMMANDS[name], info_name=name, help_option_names=["-h", "--help"])
    longest = {
        max(p.opts, key=len) for p in COMMANDS[name].get_params(context) if isinstance(p, click.Option) and not p.hidden
    }
    assert sorted(listed) == sorted(longest)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", [80, 140])
def test_help_is_as_wide_as_the_terminal(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    said = shell(capsys, COMMANDS[name], "--help").out
    for title in GROUPS[name]:
        assert (f"\n{title}:\n" in said) == (title not in AUTHORS.get(name, ()))
    assert len(said.splitlines()) <= 60 or name != "boost-compile"
    assert columns - 25 < max(map(len, said.splitlines())) <= columns
    assert len(EXAMPLES[name]) == 3
    assert all(f"\n  {line}\n" in said for line in EXAMPLES[name])


def test_who_writes_passes_has_a_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    said = shell(capsys, compile_command.command, "--help-passes-authors").out
    for title in AUTHORS["boost-compile"]:
        assert f"{title}:\n" in said
        assert all(option in said for option in GROUPS["boost-compile"][title].split())
    assert "--accumulate" not in said


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_are_options_that_exist(line: str) -> None:
    name, *arguments = shlex.split(line.split(">")[0], comments=True)
    COMMANDS[name].make_context(name, arguments, resilient_parsing=False)


@pytest.mark.mindspore
def test_losses_and_optimizers_are_listed_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    losses = shell(capsys, compile_command.command, "--list-losses")
    assert "softmax-cross-entropy: mindspore.nn.SoftmaxCrossEntropyWithLogits; labels: class numbers" in losses.out
    optimizers = shell(capsys, compile_command.command, "--list-optimizers", "--json").document
    assert optimizers["momentum"]["options"]["momentum"] == "required"
    assert optimizers["adam-weight-decay"]["class"] == "mindspore.nn.AdamWeightDecay"
    assert "params" not in optimizers["adam"]["options"]


@pytest.mark.mindspore
@pytest.mark.parametrize(
    ("option", "word", "meant"),
    [
        ("--loss", "softmax", "softmax-cross-entropy"),
        ("--loss", "crossentropy2", "cross-entropy"),
        ("--optimizer", "adamw", "adam-weight-decay"),
        ("--optimizer", "momentm", "momentum"),
    ],
)
def test_an_unknown_name_gets_the_nearest_and_all_of_them(
    option: str, word: str, meant: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = {"--loss": "mse", "--optimizer": "sgd", option: word}
    source = tmp_path / "net.ir"
    source.write_text(
        "state %w: float32[2] role=weight\n"
        "graph @net(%x: float32[2]) {\n  %r = Load(%w, umonad)\n  %y = Mul(%x, %r)\n  return %y\n}\n"
    )
    done = shell(capsys, compile_command.command, source, *(part for pair in given.items() for part in pair))
    listing = {"--loss": "--list-losses", "--optimizer": "--list-optimizers"}[option]
    assert_one_error(done, "boost-compile", f"(did you mean '{meant}'?)", listing)
    every = shell(capsys, compile_command.command, listing, "--json")
    assert all(name in done.err for name in every.document)


def test_a_shell_is_told_options_passes_and_files() -> None:
    def completed(*words: str) -> list[str]:
        environment = {
            **os.environ,
            "_BOOST_COMPILE_COMPLETE": "bash_complete",
            "COMP_WORDS": shlex.join(["boost-compile", *words]),
            "COMP_CWORD": str(len(words)),
        }
        command = [sys.executable, "-m", "boost_compile", "compile"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert completed("--acc") == ["plain,--accumulate"]
    assert completed("--passes", "gradient-accumulation{steps=4},less") == [
        "plain,gradient-accumulation{steps=4},less-bn"
    ]
    assert completed("mod") == ["file,mod"]


def test_the_module_is_all_commands(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "boost_compile", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert json.loads(run("compile", "--list-passes", "--json").stdout)["less-bn"]
    nothing = run()
    assert nothing.returncode == 0
    assert all(name.removeprefix("boost-") in nothing.stdout for name in COMMANDS)
    wrong = run("compute")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "there is no command 'compute'" in wrong.stderr
