"""boost-verify where the original does not repeat itself: nothing is shown then, and no pass is guilty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.passes import clip_gradients
from boost_compile.tools.verification.reference import Batch, Reference, Values
from boost_compile.tools.verification.report import FAILED, VACUOUS
from boost_compile.tools.verify import command

import boost_compile as bc

from .support import shell

ROUNDING = 2.0**-24


def make_unsteady(monkeypatch: pytest.MonkeyPatch, by: float, spoiled: str) -> None:
    """The results of the original whose names begin so are off by chance, as they are of kernels that read what nobody
    wrote."""
    real, rng = Reference._run, np.random.default_rng(0)

    def run(self: Reference, state: Values, batch: Batch, given: Values) -> tuple[dict[str, Any], Values]:
        outputs, after = real(self, state, batch, given)
        for name in [n for n in outputs if n.startswith(spoiled)]:
            value = np.asarray(outputs[name])
            value = value + (by * np.abs(value).max() * rng.standard_normal(value.shape)).astype(value.dtype)
            outputs = {**outputs, name: float(value) if isinstance(outputs[name], float) else value}
        return outputs, after

    monkeypatch.setattr(Reference, "_run", run)


@pytest.mark.parametrize(
    ("spoiled", "name", "what"),
    [("gradient.", "different micro-batches", "the gradient of '"), ("loss", "losses", "loss is ")],
)
def test_an_original_that_does_not_repeat_itself_shows_nothing(
    spoiled: str,
    name: str,
    what: str,
    exported: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bc.compile(exported("mlp"), "gradient-accumulation{steps=2}").save(tmp_path / "p.boost")
    make_unsteady(monkeypatch, 0.1, spoiled)
    done = shell(capsys, command, exported("mlp"), tmp_path / "p.boost", "--json")
    assert done.code == 1
    found = {result["name"]: result for result in done.document["results"]}
    assert found[name]["status"] == VACUOUS
    assert f"the original does not repeat itself: run again on the same state and micro-batch, {what}" in str(
        found[name]["detail"]
    )
    assert FAILED not in {result["status"] for result in found.values()}
    assert (done.document["verified"], done.document["guilty"]) == (False, None)
    done = shell(capsys, command, exported("mlp"), tmp_path / "p.boost")
    assert done.code == 1
    assert "the original does not repeat itself" in " ".join(done.out.split())
    assert "NOT verified" in done.out
    assert "Guilty" not in done.out


@pytest.mark.parametrize("by", [0, ROUNDING])
def test_a_wrong_program_is_failed_where_the_original_repeats_itself_but_for_rounding(
    by: float, exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = clip_gradients.norm
    monkeypatch.setattr(clip_gradients, "norm", lambda graph, squares: real(graph, list(squares)[1:]))
    original = bc.load(exported("mlp"))
    program = bc.compile(original, "loss-scale{mode=static,init=8},clip-gradients{limit=0.1}")
    make_unsteady(monkeypatch, by, "gradient.")
    found = bc.verify(original, program, quick=True)
    assert found.result("different micro-batches").status == FAILED
    assert found.guilty is not None
    assert found.guilty.name == "clip-gradients"


def test_what_no_run_decides_is_failed_all_the_same(
    exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bc.load(exported("mlp"))
    program = bc.compile(original, "gradient-accumulation{steps=2}")
    name = next(n for n, variable in program.state.items() if variable.role == "weight")
    program = program.with_values({name: np.zeros(program.state[name].shape, np.float32)})
    make_unsteady(monkeypatch, 0.1, "gradient.")
    found = bc.verify(original, program, bisect=False, quick=True)
    assert [r.name for r in found.failures] == ["initial state"]


def test_what_holds_costs_no_further_run(exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Reference, "anew")
    original = bc.load(exported("mlp"))
    assert bc.verify(original, bc.compile(original, "gradient-accumulation{steps=2}"), quick=True).verified
