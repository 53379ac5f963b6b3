"""The passes as the documentation lists them: options with their defaults and limits, promises, and their order."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from boost_compile.passes.framework.manager import canonical_order
from boost_compile.passes.framework.pipeline import parse_pipeline
from boost_compile.passes.framework.registry import CLASSES, REGISTRY

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_of_passes_is_what_their_classes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    make = importlib.import_module("make_passes")
    assert make.page().splitlines() == (DOCS / "passes.md").read_text(encoding="utf-8").splitlines()


WITH = {"batch-size": "{size=2}", "dim-reduce": "{basis=x}", "parameter-groups": "{split_points=[1]}"}
ORDER = [
    # What needs the whole network, as asked for.
    *("tag-gradient-centralization", "normalised-head", "less-bn", "legalize", "batch-size"),
    # Around the optimizer; clean-ups keep their places between.
    *("gradient-accumulation", "loss-scale", "group-loss-scale", "overflow-check", "clip-gradients"),
    *("effect-chain-minimization", "dead-code-elimination", "parameter-groups", "common-subexpression-elimination"),
    "lower-gradient-centralization",
    # What works on all of that, and last what each compilation does anew.
    *("patch-convolution", "gradient-freeze", "dim-reduce", "data-parallel", "adasum"),
]


def test_the_order_in_which_passes_run() -> None:
    asked = parse_pipeline(",".join(name + WITH.get(name, "") for name in sorted(CLASSES, reverse=True)))
    assert [p.name for p in canonical_order(asked)] == ORDER
    assert {name for name in CLASSES if REGISTRY[name].may_match_nothing} == {
        *("common-subexpression-elimination", "dead-code-elimination", "effect-chain-minimization", "legalize"),
    }
