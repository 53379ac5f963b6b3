"""The passes as the documentation lists them: options with their defaults and limits, promises, and their order."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from boost_compile.ir.core.errors import OptionError
from boost_compile.passes.framework.base import Pass
from boost_compile.passes.framework.manager import canonical_order
from boost_compile.passes.framework.options import REQUIRED, declared_options
from boost_compile.passes.framework.pipeline import parse_pipeline
from boost_compile.passes.framework.registry import CLASSES, REGISTRY, register

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_of_passes_is_what_their_classes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    make = importlib.import_module("make_passes")
    assert make.page().splitlines() == (DOCS / "passes.md").read_text(encoding="utf-8").splitlines()


WITH = {
    "batch-size": "{size=2}",
    "dim-reduce": "{basis=x}",
    "freeze": "{match=[x]}",
    "lora": "{match=[x]}",
    "parameter-groups": "{split_points=[1]}",
    "replace-optimizer": "{to=lion}",
    "schedule": "{total=2}",
}
ORDER = [
    # What needs the whole network, as asked for, as all of them see it.
    *("legalize", "tag-gradient-centralization", "replace-optimizer", "normalised-head", "lora", "less-bn"),
    *("freeze", "batch-size", "schedule", "mixed-precision"),
    # Around the optimizer; clean-ups keep their places between.
    *("gradient-accumulation", "loss-scale", "group-loss-scale", "overflow-check", "clip-gradients"),
    *("parameter-groups", "lower-gradient-centralization", "effect-chain-minimization"),
    *("dead-code-elimination", "gradient-centralization"),
    # What works on all of that, and last what each compilation does anew.
    *("weight-average", "recompute", "patch-convolution", "gradient-freeze", "dim-reduce", "monitor"),
    *("data-parallel", "shard-optimizer", "adasum", "common-subexpression-elimination"),
]


def test_the_order_in_which_passes_run() -> None:
    asked = parse_pipeline(",".join(name + WITH.get(name, "") for name in sorted(CLASSES, reverse=True)))
    assert [p.name for p in canonical_order(asked)] == ORDER
    assert {name for name in CLASSES if REGISTRY[name].may_match_nothing} == {
        *("common-subexpression-elimination", "dead-code-elimination", "effect-chain-minimization", "legalize"),
    }


@pytest.mark.parametrize(
    ("asked", "run"),
    [
        (
            "common-subexpression-elimination,gradient-freeze,dead-code-elimination",
            "gradient-freeze,common-subexpression-elimination,dead-code-elimination",
        ),
        (
            "gradient-freeze,dead-code-elimination,overflow-check,common-subexpression-elimination,less-bn",
            "less-bn,dead-code-elimination,overflow-check,gradient-freeze,common-subexpression-elimination",
        ),
    ],
)
def test_clean_ups_at_the_end_see_what_late_passes_made(asked: str, run: str) -> None:
    assert [p.name for p in canonical_order(parse_pipeline(asked))] == run.split(",")


def test_names_are_taken_once() -> None:
    class Fresh(Pass):
        name = "fresh"

    class Nameless(Pass):
        pass

    try:
        assert register(Fresh) is Fresh
        assert register(Fresh) is REGISTRY["fresh"]
        assert len(REGISTRY) == len(CLASSES) + sum(name not in CLASSES for name in REGISTRY)
        assert "fresh" in set(REGISTRY)
    finally:
        del REGISTRY["fresh"]
    with pytest.raises(OptionError, match="cannot register Nameless: the name '' is empty"):
        register(Nameless)


def test_options_that_do_not_fit_each_other_are_told_where_they_stand() -> None:
    with pytest.raises(OptionError) as caught:
        parse_pipeline("overflow-check,batch-size")
    assert str(caught.value).splitlines() == [
        "pass 'batch-size': give either size or dynamic=true",
        "  overflow-check,batch-size",
        "                 ^",
    ]


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_options_are_checked_in_python_too(name: str) -> None:
    cls = REGISTRY[name]
    options = declared_options(cls).values()
    needed = {option.name: ("x",) if option.is_list else "x" for option in options if option.default is REQUIRED}
    for option in options:
        beyond = [] if option.minimum is None else [option.minimum - 1 - abs(option.minimum)]
        beyond += [] if option.maximum is None else [option.maximum + 1 + abs(option.maximum)]
        for wrong in map(option.element, beyond):
            with pytest.raises(OptionError, match=f"pass '{name}': option '{option.name}' must be at"):
                cls(**{**needed, option.name: (wrong,) if option.is_list else wrong})
