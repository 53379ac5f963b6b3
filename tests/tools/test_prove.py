"""boost-prove: what it proves, shows, stores and checks again, and its errors. Without MindSpore."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.tools.compile import command as compile_command
from boost_compile.tools.prove import command
from boost_compile.tools.verify import command as verify_command

import boost_compile as bc
from tests.waiting import PATIENCE

from .support import assert_one_error, shell

MATERIAL = Path(__file__).parents[1] / "material"
MLP = MATERIAL / "mlp.ir"
Capture = pytest.CaptureFixture[str]


def made(pipeline: str, name: str = "mlp", path: str = "made.boost") -> str:
    bc.compile(MATERIAL / f"{name}.ir", pipeline).save(path)
    return path


def made_wrong() -> str:
    """Accumulation over three micro-batches that divides by two; a good one stands in made.boost."""
    program = bc.load(made("gradient-accumulation{steps=3}"))
    program.graphs["apply"].sort()
    divide = next(n for n in program.graphs["apply"] if n.op.name == "RealDiv")
    divide.set_operands([divide.operand(0), program.graphs["apply"].constant(2.0)])
    program.save("wrong.boost")
    return "wrong.boost"


def test_a_proof_and_its_certificate(here: Path, capsys: Capture) -> None:
    path = made("gradient-accumulation{steps=3}")
    done = shell(capsys, command, MLP, path)
    assert done.code == 0, done
    assert done.out.replace("\n", " ").strip() == (
        "Proved, for all inputs: it trains as one batch of 3 times the size, if micro-batches are equal in size. "
        "Trusted: how the loss joins samples."
    )
    done = shell(capsys, command, MLP, path, "--verbose")
    assert "equal over the reals" in done.out
    stored = json.loads(Path(path, "proof.json").read_text())
    assert stored["proved"] is True
    assert {"original/mlp.ir", "program/program.json"} <= stored["hashes"].keys()
    assert {v["name"] for v in stored["verdicts"]} >= {"hidden.weight", "loss"}
    checked = shell(capsys, command, MLP, path, "--check", f"{path}/proof.json")
    assert checked.code == 0, checked
    assert checked.out.startswith("The certificate holds: ")
    # What was stored keeps nobody from reading the program.
    assert bc.load(path).pipeline


def test_a_program_that_takes_no_result_is_said_before_the_work(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made("gradient-accumulation{steps=3}")
    before = set(here.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda place, mode: str(place) != path)  # as of a file system that is read-only
        for name, told in (("boost-prove", command), ("boost-verify", verify_command)):
            refused = shell(capsys, told, MLP, path)
            assert_one_error(
                refused, name, f"{path}: this folder is not writable", f"{name} --no-store leaves that out"
            )
        assert shell(capsys, command, MLP, path, "--no-store").code == 0
    assert set(here.rglob("*")) == before


def test_what_is_not_proved_names_terms_and_pass(here: Path, capsys: Capture) -> None:
    done = shell(capsys, command, MLP, made_wrong())
    assert done.code == 1
    assert "not proved: state" in done.out
    assert "last touched by pass gradient-accumulation" in done.out
    assert "expected: " in done.out
    assert "found: " in done.out
    assert not Path("wrong.boost", "proof.json").exists()


def test_a_reason_is_told_once_for_all_states(here: Path, capsys: Capture) -> None:
    path = made("adasum")
    done = shell(capsys, command, MLP, path)
    assert done.code == 1
    said = " ".join(done.out.split())
    assert said.count("no formula says how") == 1, done.out
    assert f"{len(bc.load(MLP).state)} states (hidden.weight, " in said, done.out
    assert repr(bc.prove(str(MLP), path)).count("no formula says how") == 1


def test_json(here: Path, capsys: Capture) -> None:
    path = made("overflow-check,gradient-accumulation{steps=2}")
    found = shell(capsys, command, MLP, path, "--json", "--no-store").document
    assert found["proved"] is True
    assert {v["verdict"] for v in found["verdicts"]} == {"same bits", "equal over the reals", "the program's own"}
    assert not Path(path, "proof.json").exists()


def test_compile_and_prove(here: Path, capsys: Capture) -> None:
    done = shell(capsys, compile_command, MLP, "--accumulate", "2", "--prove", "--prove-each", "-o", "a.boost")
    assert done.code == 0, done.err
    assert "Proved, for all inputs" in done.out
    assert Path("a.boost", "proof.json").exists()
    refused = shell(capsys, compile_command, MLP, "--accumulate", "2", "-p", "adasum", "--prove-each", "-o", "b.boost")
    assert_one_error(refused, "boost-compile", "after pass 'adasum'", "NOT proved")
    assert not Path("b.boost").exists()
    clipped = shell(
        capsys,
        compile_command,
        MLP,
        "--accumulate",
        "2",
        "--clip-norm",
        "1",
        "--prove-each",
        "--prove",
        "-o",
        "d.boost",
    )
    assert clipped.code == 0, clipped.err
    assert ", but for clip-gradients." in clipped.out
    quiet = shell(capsys, compile_command, MLP, "-p", "adasum", "--prove", "-q", "-o", "c.boost")
    assert quiet.code == 1
    assert quiet.out == ""
    assert "NOT proved" in quiet.err


@pytest.mark.parametrize("path", ["made.boost", "made.mindir"])
@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        ("lora{match=[hidden.weight],rank=2},schedule{total=9}", "y' = y + 8 / 2 · (x · Aᵀ) · Bᵀ"),
        ('replace-optimizer{to="muon{lr=0.01}"},schedule{total=9}', "optimizer muon{lr=0.01}: "),
        ("normalised-head", "the layer of output.weight is s · (x̂ · Ŵᵀ + b)"),
    ],
)
def test_another_network_or_optimizer(pipeline: str, says: str, path: str, here: Path, capsys: Capture) -> None:
    """From files, with the certificate of a directory checked again."""
    made(f"{pipeline},gradient-accumulation{{steps=2}}", path=path)
    done = shell(capsys, command, MLP, path, "-v")
    assert done.code == 0, done
    assert says in " ".join(done.out.split())
    if path == "made.boost":
        checked = shell(capsys, command, MLP, path, "--check", f"{path}/proof.json")
        assert checked.code == 0, checked


def test_what_is_changed_on_purpose(here: Path, capsys: Capture) -> None:
    """The report says which pass changes what by which formula, and so does the certificate."""
    path = made(
        "clip-gradients{limit=0.5},parameter-groups{match=[*.bias],lr_factor=2.0},gradient-accumulation{steps=3}"
    )
    done = shell(capsys, command, MLP, path, "-v")
    assert done.code == 0, done
    assert "changed on purpose" in done.out
    assert "clip-gradients: g' = g · 0.5 / max(n, 0.5), n² the sum of the squares of all gradients" in done.out
    assert "parameter-groups: its learning rate is multiplied by 2 (weight hidden.bias, output.bias)" in done.out
    file = Path(path, "proof.json")
    stored = json.loads(file.read_text())
    assert [c["pass"] for c in stored["changed"]] == ["clip-gradients", "parameter-groups"]
    assert {v["detail"] for v in stored["verdicts"] if v["name"] == "hidden.bias"} == {
        "by clip-gradients, parameter-groups"
    }
    assert shell(capsys, command, MLP, path, "--check", file).code == 0


@pytest.fixture
def one_file(here: Path) -> Path:
    """A program as one MindIR."""
    bc.compile(MLP, "overflow-check,gradient-accumulation{steps=3},loss-scale").save("one.mindir")
    return Path("one.mindir")


@pytest.mark.parametrize(
    "pipeline",
    [
        "gradient-accumulation{steps=3}",
        "gradient-accumulation{steps=4,split=fused,reduction=sum}",
        "gradient-accumulation{steps=2},data-parallel",
        "overflow-check,gradient-accumulation{steps=3},loss-scale",
    ],
)
def test_a_self_contained_file(here: Path, pipeline: str, capsys: Capture) -> None:
    bc.compile(MLP, pipeline).save("one.mindir")
    done = shell(capsys, command, MLP, "one.mindir")
    assert done.code == 0, done
    how = "sums 4" if "sum" in pipeline else f"averages {pipeline[pipeline.index('steps=') + 6]}"
    assert f"it trains as the native loop that {how} micro-batches" in " ".join(done.out.split())


@pytest.mark.parametrize("fault", ["later", "sooner", "the other way", "never counted"])
def test_a_self_contained_file_that_updates_at_another_time(one_file: Path, fault: str) -> None:
    original, program = bc.load(MLP), bc.load(one_file)
    assert bc.prove(original, program).proved
    graph = program.graphs["step"]
    (due,) = [n for n in graph if n.op.name == "GreaterEqual" and n.scope == "schedule"]
    (switch,) = [n for n in due.users if n.op.name == "Switch"]
    if fault in ("later", "sooner"):
        due.set_operand(1, graph.constant(scalar_tensor("float32", 4.0 if fault == "later" else 2.0)))
    elif fault == "the other way":
        switch.set_operands([switch.operand(0), switch.operand(2), switch.operand(1)])
    else:
        (count,) = [n for n in graph if n.op.name == "AssignAdd" and n.operand(0).name == "accumulation.count"]
        count.set_operand(1, graph.constant(scalar_tensor("float32", 2.0)))
    assert not bc.prove(original, program).proved


def test_from_python() -> None:
    original = bc.load(MLP)
    found = bc.prove(original, bc.compile(original, "gradient-accumulation{steps=2}"))
    assert found.proved
    assert {v.name for v in found.proof.verdicts} >= {"hidden.weight", "loss"}


def test_a_certificate_of_other_files(here: Path, capsys: Capture) -> None:
    path = made("gradient-accumulation{steps=3}")
    assert shell(capsys, command, MLP, path).code == 0
    certificate = Path("kept.json")
    certificate.write_bytes(Path(path, "proof.json").read_bytes())
    made("gradient-accumulation{steps=2}")
    assert_one_error(shell(capsys, command, MLP, path, "--check", certificate), "boost-prove", "is about other files")


@pytest.mark.parametrize(
    ("old", "new", "fragment"),
    [
        ('"format": 6', '"format": 7', "format 7"),
        ('"verdicts": [', '"verdicts": 3, "x": [', "$.verdicts"),
        ("{", "", "the file is damaged; run boost-prove again"),
        ('"proved": true', '"proved": false', "proves nothing"),
    ],
)
def test_a_damaged_certificate(old: str, new: str, fragment: str, here: Path, capsys: Capture) -> None:
    path = made("gradient-accumulation{steps=3}")
    assert shell(capsys, command, MLP, path).code == 0
    file = Path(path, "proof.json")
    file.write_text(file.read_text().replace(old, new, 1))
    assert_one_error(shell(capsys, command, MLP, path, "--check", file), "boost-prove", fragment)


@pytest.mark.parametrize(
    ("role", "weight", "says"),
    [
        ("unknown", "hidden.bias", "not claimed: nothing says what a micro-batch adds to it"),
        ("accumulator", "", "a micro-batch adds something else to 'accum.hidden.bias' than a number"),
        ("accumulator", "output.bias", "than the gradient of weight 'output.bias', which it is claimed to add up"),
    ],
)
def test_what_is_not_claimed_is_not_proved_by_search(role: str, weight: str, says: str) -> None:
    """The pass writes what a micro-batch adds to a state beside the program: the role of the state, and its weight."""
    original = bc.load(MLP)
    program = bc.compile(original, "gradient-accumulation{steps=3}")
    assert bc.prove(original, program)
    state = program.state["accum.hidden.bias"]
    state.role, state.weight = role, weight
    found = bc.prove(original, program)
    assert not found
    assert any(says in v.detail for v in found.proof.failures)


def test_bad_input(here: Path, capsys: Capture) -> None:
    path = made("gradient-accumulation{steps=3}")
    assert_one_error(shell(capsys, command, path, path), "boost-prove", "compiled already")
    assert_one_error(shell(capsys, command, MLP, "nothing.boost"), "boost-prove", "nothing.boost")
    assert_one_error(shell(capsys, command, MATERIAL / "lenet_bn.ir", path), "boost-prove", "not made from")
    Path("binary.npz").write_bytes(b"PK\xa3")
    for file, why in (("none.json", "cannot be read: No such file or directory\n"), ("binary.npz", "not UTF-8")):
        done = shell(capsys, command, MLP, path, "--check", file)
        assert_one_error(done, "boost-prove", f"{file}: {why}")


def test_another_value_at_the_start(here: Path, capsys: Capture) -> None:
    program = bc.load(made("gradient-accumulation{steps=3}"))
    program.with_values({"output.bias": program.state["output.bias"].initial + np.float32(1)}).save("moved.boost")
    done = shell(capsys, command, MLP, "moved.boost")
    assert done.code == 1
    assert "begins with another value" in done.out


@pytest.mark.parametrize(
    ("program", "rest", "code"),
    [
        ("made.boost", "| true", 141),
        ("made.boost", "--json | true", 141),
        ("wrong.boost", "| true", 141),  # and not 1: nothing was said
        ("made.boost", ">&-", 0),
        ("wrong.boost", ">&- 2>&-", 1),
        ("missing.boost", "2>&-", 2),
        ("missing.boost", "2>&1 | true", 2),
    ],
)
def test_an_output_that_nobody_reads_is_no_answer(program: str, rest: str, code: int, here: Path) -> None:
    made_wrong()
    line = f"set -o pipefail; {sys.executable} -m boost_compile.tools.prove {MLP} {program} {rest}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
