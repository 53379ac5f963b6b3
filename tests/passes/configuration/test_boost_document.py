"""The configuration of mindspore.boost as a pipeline: its switches, its keys, and what is wrong with it.

test_auto_boost.py judges the same by AutoBoost itself.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from boost_compile.passes.configuration.boost_document import LEVELS, SCHEMA
from boost_compile.passes.configuration.configuration import Configuration, read_configuration

import boost_compile as bc
from tests.passes.configuration.documents import BASIS, EXAMPLE, Document, manual, notes, translated

# -- switches --------------------------------------------------------------------------------------------------


LESS_BN = "less-bn?{select=pattern-or-inner},normalised-head?{layers=every-cell,bias=drop},gradient-centralization?"
FREEZE = "gradient-freeze?{groups=10,type=interval,probability=0.7,total_steps=65536,after=repeat}"
GROUPS = "group-loss-scale?{groups=4,init=[4096.0]}"
SEARCH = "dim-reduce?{basis=basis.npy,rho=0.55,gamma=0.9,alpha=0.001,sigma=0.4,n_components=32}"
STEPS = {"grad_accumulation_step": 3}


@pytest.mark.parametrize(
    ("document", "level", "pipeline"),
    [
        ({}, "O1", f"{LESS_BN},{FREEZE}"),
        ({}, "O2", f"{LESS_BN},{FREEZE},adasum?{{devices_per_group=8}}"),
        ({"boost": {"mode": "disable_all"}}, "O2", ""),
        (manual("less_bn"), "O0", LESS_BN),
        (
            {"boost": {"mode": "manual", "adasum": True, "less_bn": False}},
            "O1",
            f"{FREEZE},adasum?{{devices_per_group=8}}",
        ),
        (manual("grad_freeze", grad_freeze={"freeze_type": 0}), "O0", FREEZE.replace("interval", "continuous")),
        (manual("grad_accumulation", grad_accumulation=STEPS), "O0", "gradient-accumulation?{steps=3,reduction=mean}"),
        (manual("loss_scale_group"), "O0", GROUPS),
        (manual("dim_reduce", dim_reduce=BASIS), "O0", SEARCH),
        (
            {"boost": {"mode": "enable_all"}, "grad_accumulation": STEPS},
            "O0",
            f"{LESS_BN},{FREEZE},adasum?{{devices_per_group=8}},gradient-accumulation?{{steps=3,reduction=mean}},{GROUPS}",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::boost_compile.passes.configuration.boost_document.BoostNote")
def test_what_a_level_or_a_switch_asks_for(document: Document, level: str, pipeline: str) -> None:
    """With the defaults of AutoBoost's documentation (`EXAMPLE`)."""
    assert bc.from_boost_config(document, level) == pipeline


def test_level_zero_asks_for_nothing() -> None:
    assert bc.from_boost_config() == ""
    assert bc.from_boost_config("") == ""
    assert bc.from_boost_config(EXAMPLE) == ""


@pytest.mark.parametrize("level", ["O3", "o1", "", None, 1])
def test_another_level_is_an_error_not_level_zero(level: Any) -> None:
    with pytest.raises(bc.Error, match="unknown boost level"):
        bc.from_boost_config({}, level)


def test_switches_that_the_mode_overrules_are_told() -> None:
    (note,) = notes({"boost": {"grad_freeze": True, "less_bn": False}})
    assert "the level (O0) decides" in note
    assert "boost.grad_freeze = true" in note
    assert "less_bn" not in note  # it says what the level says
    (note,) = notes({"boost": {"mode": "disable_all", "adasum": True}})
    assert "boost.adasum = true" in note
    assert not notes(manual("grad_freeze"))
    assert not notes(EXAMPLE)


def test_the_callers_document_stays_as_it_is() -> None:
    document = manual("grad_freeze", "grad_accumulation", grad_accumulation={"grad_accumulation_step": 4})
    before = copy.deepcopy(document)
    first = translated(document)
    assert document == before
    assert translated(document) == first
    assert translated(manual("grad_freeze")).keys() == {"gradient-freeze"}  # no memory of the one before


# -- keys and defaults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({}, {"groups": 4, "match": (), "init": (4096.0,)}),
        ({"init_loss_scale": 1024, "loss_scale_groups": 3}, {"groups": 3, "init": (1024.0,)}),
        (
            {"init_loss_scale": [64, 2.5], "loss_scale_groups": [["conv1.weight", "conv2.weight"], "fc*|bn*"]},
            {"match": ("conv1.weight|conv2.weight", "fc*|bn*"), "init": (64.0, 2.5)},
        ),
    ],
)
def test_groups_of_loss_scales(section: Document, expected: Document) -> None:
    options = translated(manual("loss_scale_group", loss_scale_group=section))["group-loss-scale"]
    assert {key: options[key] for key in expected} == expected


def test_groups_of_loss_scales_that_do_not_fit() -> None:
    for section, message in (
        ({"loss_scale_groups": 1}, "loss_scale_group.loss_scale_groups must be at least 2, not 1"),
        ({"loss_scale_groups": [["a", 3]]}, "loss_scale_group.loss_scale_groups[0][1] must be a string, not 3"),
        ({"init_loss_scale": [64, "x"]}, "loss_scale_group.init_loss_scale[1] must be a finite number, not"),
        ({"init_loss_scale": "4096"}, "loss_scale_group.init_loss_scale must be a finite number or a list"),
        ({"loss_scale_group": []}, "unknown key 'loss_scale_group.loss_scale_group'"),
    ):
        with pytest.raises(bc.Error, match=re.escape(message)):
            bc.from_boost_config({"loss_scale_group": section})


def test_split_points_belong_to_less_bn() -> None:
    common = {"gradient_split_groups": [50, 100]}
    assert translated(manual("less_bn", common=common))["parameter-groups"]["split_points"] == (50, 100)
    assert "parameter-groups" not in translated(manual("less_bn"))
    assert "parameter-groups" not in translated(manual("grad_freeze", common=common))
    # AutoBoost means to take an int too, but fails on it.
    one = translated(manual("less_bn", common={"gradient_split_groups": 0}))
    assert one["parameter-groups"]["split_points"] == (0,)


# -- what is refused -------------------------------------------------------------------------------------------

KINDS: dict[str, Any] = {
    "str": "abc",
    "int": 7,
    "float": 1.5,
    "bool": True,
    "NoneType": None,
    "dict": {},
    "list": [1.5],
}
DOCUMENTED = {**EXAMPLE, "grad_accumulation": {"grad_accumulation_step": 1}}
ALSO = {"float": {"int"}, "list": {"int"}, "NoneType": {"str"}}
WRONG = [
    (section, key, kind)
    for section, keys in DOCUMENTED.items()
    for key, value in keys.items()
    for kind in KINDS
    if kind == "list" or kind not in {type(value).__name__} | ALSO.get(type(value).__name__, set())
]


@pytest.mark.parametrize(("section", "key", "kind"), WRONG)
def test_a_wrong_type_names_the_path(section: str, key: str, kind: str) -> None:
    with pytest.raises(bc.Error) as caught:
        bc.from_boost_config({section: {key: KINDS[kind]}})
    path = f"{section}.{key}" if (key, kind) != ("gradient_split_groups", "list") else f"{section}.{key}[0]"
    assert str(caught.value).startswith(f"boost configuration: {path} must be ")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_are_finite(value: float) -> None:
    with pytest.raises(bc.Error, match=r"dim_reduce\.rho must be a finite number"):
        bc.from_boost_config({"dim_reduce": {"rho": value}})


@pytest.mark.parametrize(
    ("document", "fragments"),
    [
        ({"grad_freez": {}}, ["unknown key 'grad_freez' (did you mean 'grad_freeze'?)"]),
        ({"boost": {"less_b": True}}, ["unknown key 'boost.less_b' (did you mean 'less_bn'?)"]),
        ({"grad_freeze": {"freeze_q": 1}}, ["unknown key 'grad_freeze.freeze_q' (did you mean 'freeze_p'?)"]),
        ({"grad_freeze": {"rho": 0.5}}, ["unknown key 'grad_freeze.rho'", "known: freeze_p"]),  # upstream reads it
        ({"adasum": {"degree": 2}}, ["unknown key 'adasum.degree' (it has no keys)"]),
        ({"boost": {"mode": "manuel"}}, ["boost.mode cannot be \"manuel\" (did you mean 'manual'?)"]),
        ({"boost": []}, ["boost must be a table, not a list"]),
        ([], ["the document must be a table, not a list"]),
        ({"grad_freeze": {"freeze_p": 1.0}}, ["grad_freeze.freeze_p must be at most 0.99, not 1.0"]),
        ({"grad_freeze": {"param_groups": 1}}, ["grad_freeze.param_groups must be at least 2, not 1"]),
        ({"grad_freeze": {"freeze_type": 2}}, ["grad_freeze.freeze_type cannot be 2 (known: [0, 1])"]),
        ({"grad_freeze": {"total_steps": 10.0}}, ["grad_freeze.total_steps must be an integer, not 10.0"]),
        ({"common": {"gradient_split_groups": [3, "x"]}}, ["common.gradient_split_groups[1] must be an integer"]),
        (
            {"boost": {"adasum": "yes", "mod": "auto"}, "less_bn": {"fn_flag": 1}},
            ["boost.adasum must be true or false, not \"yes\"", "unknown key 'boost.mod'", "less_bn.fn_flag must be"],
        ),
    ],
)  # fmt: skip
def test_errors_say_what_and_where(document: Any, fragments: list[str]) -> None:
    with pytest.raises(bc.Error) as caught:
        bc.from_boost_config(document)
    for fragment in fragments:
        assert fragment in str(caught.value)


LIMITS = [  # section, key: a value that is just allowed, one that is not
    ("common", "device_number", 1, 0),
    ("common", "gradient_split_groups", 0, -1),
    ("common", "gradient_split_groups", [0], [-1]),
    ("grad_freeze", "param_groups", 2, 1),
    ("grad_freeze", "freeze_p", 0, -0.5),
    ("grad_freeze", "freeze_p", 0.99, 1.0),
    ("grad_freeze", "total_steps", 1, 0),
    ("dim_reduce", "rho", 0.01, 0.0),
    ("dim_reduce", "rho", 0.99, 1.0),
    ("dim_reduce", "gamma", 0, -0.5),
    ("dim_reduce", "gamma", 1, 1.5),
    ("dim_reduce", "alpha", 0, -0.5),
    ("dim_reduce", "sigma", 0, -0.5),
    ("dim_reduce", "sigma", 1, 1.5),
    ("dim_reduce", "n_components", 1, 0),
    ("dim_reduce", "timeout", 0, -1),
    ("loss_scale_group", "init_loss_scale", 0, -1),
    ("loss_scale_group", "init_loss_scale", [0], [-1]),
    ("loss_scale_group", "loss_scale_groups", 2, 1),
]


@pytest.mark.parametrize(("section", "key", "allowed", "refused"), LIMITS)
def test_limits(section: str, key: str, allowed: Any, refused: Any) -> None:
    off = {"boost": {"mode": "disable_all"}}
    assert bc.from_boost_config({**off, section: {key: allowed}}) == ""
    with pytest.raises(bc.Error, match=rf"{section}\.{key}.* must be at "):
        bc.from_boost_config({**off, section: {key: refused}})


def test_the_defaults_are_those_of_the_documentation() -> None:
    for section, keys in EXAMPLE.items():
        if section not in ("boost", "common"):  # switches have none; split points that nobody asked for are none
            assert {k: SCHEMA["properties"][section]["properties"][k]["default"] for k in keys} == keys


def test_values_are_checked_where_the_switch_is_off_too() -> None:
    with pytest.raises(bc.Error, match=r"dim_reduce\.rho must be"):
        bc.from_boost_config({"boost": {"mode": "disable_all"}, "dim_reduce": {"rho": "0.5"}})


@pytest.mark.parametrize("level", LEVELS)
def test_a_line_search_needs_a_basis(level: str) -> None:
    for document in (
        manual("dim_reduce"),
        {"boost": {"mode": "manual", "dim_reduce": True}, "dim_reduce": {"rho": 0.5}},
    ):
        with pytest.raises(bc.Error, match=r"give dim_reduce\.pca_mat_path, a file, or dim_reduce\.weight_load_dir"):
            bc.from_boost_config(document, level)
    for given, expected in (
        ({"pca_mat_path": "a, b/basis.npy"}, "a, b/basis.npy"),
        ({"weight_load_dir": "checkpoints"}, "checkpoints"),
        ({"weight_load_dir": "checkpoints", "pca_mat_path": "basis.npy"}, "basis.npy"),
    ):
        assert translated(manual("dim_reduce", dim_reduce=given), level)["dim-reduce"]["basis"] == expected


# -- notes -----------------------------------------------------------------------------------------------------


def test_freeze_and_accumulation_work_together_and_it_is_said() -> None:
    document = manual("grad_freeze", "grad_accumulation", grad_accumulation={"grad_accumulation_step": 2})
    assert translated(document).keys() == {"gradient-freeze", "gradient-accumulation"}
    (note,) = notes(document)
    assert "grad_freeze works with grad_accumulation" in note
    assert "total_steps counts optimizer steps" in note


@pytest.mark.parametrize("steps", [1, 0, -1])
def test_what_accumulates_nothing_is_off_and_it_is_said(steps: int) -> None:
    document = manual("grad_accumulation", grad_accumulation={"grad_accumulation_step": steps})
    with pytest.warns(UserWarning, match=f"accumulates nothing: grad_accumulation_step is {steps}$"):
        assert bc.from_boost_config(document) == ""


def test_a_wrong_mode_or_level_is_a_value_error_as_upstream() -> None:
    with pytest.raises(ValueError, match="mode cannot be"):
        bc.from_boost_config({"boost": {"mode": "manul"}})
    with pytest.raises(ValueError, match="unknown boost level"):
        bc.from_boost_config({}, "O3")


def test_dim_reduce_leaves_out_what_it_leaves_out_upstream_and_it_is_said() -> None:
    document = manual("dim_reduce", "less_bn", "grad_freeze", "adasum", dim_reduce=BASIS)
    assert translated(document).keys() == {"dim-reduce"}
    (note,) = notes(document)
    assert "dim_reduce leaves less_bn, grad_freeze, adasum out" in note


def test_scales_for_groups_leave_the_line_search_out() -> None:
    document = manual("dim_reduce", "loss_scale_group", "grad_freeze")
    assert translated(document).keys() == {"group-loss-scale", "gradient-freeze"}
    assert "loss_scale_group leaves dim_reduce out" in notes(document)[0]


# -- files -----------------------------------------------------------------------------------------------------


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(bc.Error, match=r"none\.json: No such file"):
        bc.from_boost_config(tmp_path / "none.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(bc.Error, match=r"folder\.json: Is a directory"):
        bc.from_boost_config(tmp_path / "folder.json")


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "boost.json"
    path.write_text(json.dumps(manual("grad_freeze", grad_freeze={"param_groups": 3})))
    for given in (path, str(path)):
        assert bc.from_boost_config(given).startswith("gradient-freeze?{groups=3,")
    path.write_text(json.dumps({"boost": {"mode": 1}}))
    with pytest.raises(bc.Error, match=r"boost\.json: boost\.mode must be a string, not 1"):
        bc.from_boost_config(path)


@pytest.mark.parametrize("target", ["cpu", "gpu", "ascend"])
def test_a_document_of_our_own_names_any_target(target: str, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps({"target": target}))
    assert read_configuration(tmp_path / "own.json") == Configuration(None, target)


def test_values_are_shown_as_they_were_written() -> None:
    with pytest.raises(bc.Error, match='must be true or false, not "größer"'):
        bc.from_boost_config({"boost": {"adasum": "größer"}})


def test_any_mapping_is_a_document() -> None:
    read_only = MappingProxyType({"boost": MappingProxyType({"mode": "manual", "adasum": True})})
    assert bc.from_boost_config(read_only) == "adasum?{devices_per_group=8}"


def test_a_long_value_is_shown_cut_short() -> None:
    """A message stays one line: sixty characters, or three dots fewer and their mark."""
    for length, shown in ((58, f'"{"x" * 58}"'), (59, f'"{"x" * 56}…')):
        with pytest.raises(bc.Error, match=f"less_bn.fn_flag must be true or false, not {shown}$"):
            bc.from_boost_config({"less_bn": {"fn_flag": "x" * length}})
