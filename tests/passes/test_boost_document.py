"""The configuration of mindspore.boost, judged by AutoBoost itself: the same switches, keys and defaults; and by
training: one document brings MindSpore's boosted cell and ours to the same weights."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.passes import REGISTRY, Pass, option, parse_pipeline
from boost_compile.passes.boost_document import LEVELS, SCHEMA, SWITCHES, BoostNote

import boost_compile as bc
from tests import native
from tests.compare import assert_close
from tests.networks import CASES, build, state_of

Document = dict[str, Any]
MODES = ("auto", "manual", "enable_all", "disable_all")
PASS_OF = {
    "less_bn": "less-bn",
    "grad_freeze": "gradient-freeze",
    "adasum": "adasum",
    "grad_accumulation": "gradient-accumulation",
    "dim_reduce": "dim-reduce",
    "loss_scale_group": "group-loss-scale",
}
GC = {"tag-gradient-centralization", "lower-gradient-centralization"}
EXAMPLE: Document = {
    "boost": {
        "mode": "auto",
        "less_bn": False,
        "grad_freeze": False,
        "adasum": False,
        "grad_accumulation": False,
        "dim_reduce": False,
        "loss_scale_group": False,
    },
    "common": {"gradient_split_groups": [50, 100], "device_number": 8},
    "less_bn": {"fn_flag": True, "gc_flag": True},
    "grad_freeze": {"param_groups": 10, "freeze_type": 1, "freeze_p": 0.7, "total_steps": 65536},
    "dim_reduce": {
        "rho": 0.55,
        "gamma": 0.9,
        "alpha": 0.001,
        "sigma": 0.4,
        "n_components": 32,
        "pca_mat_path": None,
        "weight_load_dir": None,
        "timeout": 1800,
    },
}
"""The document in the documentation of AutoBoost."""


class NormalisedHead(Pass):
    """Takes the place of a pass that may not exist yet."""

    name = "normalised-head"


class ParameterGroups(Pass):
    """Likewise."""

    name = "parameter-groups"
    split_points: tuple[int, ...] = option((), help="split points")


class AdaSum(Pass):
    """Likewise."""

    name = "adasum"
    device_number: int = option(1, help="devices of a server")


class GroupLossScale(Pass):
    """Likewise."""

    name = "group-loss-scale"


class DimReduce(Pass):
    """Likewise."""

    name = "dim-reduce"
    rho: float = option(0.0, help="")
    gamma: float = option(0.0, help="")
    alpha: float = option(0.0, help="")
    sigma: float = option(0.0, help="")
    n_components: int = option(0, help="")
    pca_mat_path: str | None = option("", help="")
    weight_load_dir: str | None = option("", help="")
    timeout: int = option(0, help="")
    device_number: int = option(0, help="")


FUTURE = (NormalisedHead, ParameterGroups, AdaSum, GroupLossScale, DimReduce)


@pytest.fixture
def every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all passes that a document can ask for existed."""
    for cls in FUTURE:
        monkeypatch.setitem(REGISTRY, cls.name, cls)


@pytest.fixture
def only_early_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if none of those existed that came later."""
    for cls in FUTURE:
        monkeypatch.delitem(REGISTRY, cls.name, raising=False)


@pytest.fixture
def auto_boost(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """AutoBoost, which is one for the whole process and writes into its table of levels, as if new at each call."""
    from mindspore.boost import boost

    levels = copy.deepcopy(boost._boost_config_level)
    before = boost.AutoBoost._instance

    def make(level: str, document: Document | str) -> Any:
        monkeypatch.setattr(boost, "_boost_config_level", copy.deepcopy(levels))
        boost.AutoBoost._instance = None
        return boost.AutoBoost(level, copy.deepcopy(document))

    yield make
    boost.AutoBoost._instance = before


def manual(*switches: str, **sections: Document) -> Document:
    return {"boost": {"mode": "manual", **dict.fromkeys(switches, True)}, **sections}


def translated(document: Document | None = None, level: str = "O0") -> dict[str, dict[str, Any]]:
    """Pass and options; without the notes, which have tests of their own."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoostNote)
        return {p.name: p.options() for p in parse_pipeline(bc.from_boost_config(document, level))}


def notes(document: Document, level: str = "O0") -> list[str]:
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bc.from_boost_config(document, level)
    assert all(w.category is BoostNote for w in caught)
    return [str(w.message) for w in caught]


# -- switches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("given", [(), ("adasum",), ("less_bn", "grad_accumulation"), SWITCHES])
@pytest.mark.parametrize("value", [True, False])
@pytest.mark.usefixtures("every_pass")
def test_switches_are_those_of_auto_boost(
    level: str, mode: str | None, given: tuple[str, ...], value: bool, auto_boost: Callable[..., Any]
) -> None:
    boost: Document = dict.fromkeys(given, value)
    if mode is not None:
        boost["mode"] = mode
    document = {"boost": boost, "grad_accumulation": {"grad_accumulation_step": 2}}
    upstream = auto_boost(level, document)
    on = {switch for switch, is_on in upstream.boost_config.items() if is_on}
    if "dim_reduce" in on:  # AutoBoost.network_auto_process_train returns before it comes to these
        on -= {"less_bn", "grad_freeze", "adasum"}
    asked = translated(document, level)
    assert {switch for switch, name in PASS_OF.items() if name in asked} == on


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.usefixtures("every_pass")
def test_a_level_alone(level: str, auto_boost: Callable[..., Any]) -> None:
    on = {switch for switch, is_on in auto_boost(level, "").boost_config.items() if is_on}
    for asked in (translated(None, level), translated({}, level)):
        assert {switch for switch, name in PASS_OF.items() if name in asked} == on


def test_level_zero_asks_for_nothing() -> None:
    assert bc.from_boost_config() == ""
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

ATTRIBUTES = {  # section and key: the attribute of AutoBoost, the pass, its option
    ("common", "device_number"): ("device_number", "adasum", "device_number"),
    ("grad_freeze", "param_groups"): ("_param_groups", "gradient-freeze", "groups"),
    ("grad_freeze", "freeze_p"): ("_freeze_p", "gradient-freeze", "probability"),
    ("grad_freeze", "total_steps"): ("_total_steps", "gradient-freeze", "total_steps"),
    **{
        ("dim_reduce", key): (key, "dim-reduce", key)
        for key in (
            "rho",
            "gamma",
            "alpha",
            "sigma",
            "n_components",
            "pca_mat_path",
            "weight_load_dir",
            "timeout",
        )
    },
}
OTHER_VALUES = {int: 7, float: 0.25, type(None): "some/where"}


def test_the_keys_are_all_that_auto_boost_reads() -> None:
    from mindspore.boost import AutoBoost

    keys = [k for name, s in SCHEMA["properties"].items() if name != "boost" for k in s["properties"]]
    assert sorted(keys) == sorted(AutoBoost._boost_config_func_map)


@pytest.mark.parametrize(("section", "key"), ATTRIBUTES)
@pytest.mark.usefixtures("every_pass")
def test_values_and_defaults_reach_the_pass_as_they_reach_auto_boost(
    section: str, key: str, auto_boost: Callable[..., Any]
) -> None:
    attribute, name, opt = ATTRIBUTES[section, key]
    switch = next(s for s, p in PASS_OF.items() if p == name)
    default = getattr(auto_boost("O0", manual(switch)), attribute)
    assert translated(manual(switch))[name][opt] == default
    value = OTHER_VALUES[type(default)]
    changed = manual(switch, **{section: {key: value}})
    assert getattr(auto_boost("O0", changed), attribute) == value
    assert translated(changed)[name][opt] == value


def test_the_freeze_type() -> None:
    from mindspore.boost.grad_freeze import CONTINUOUS_STRATEGY, INTERVAL_STRATEGY

    def kind(**section: Any) -> str:
        return str(translated(manual("grad_freeze", grad_freeze=section))["gradient-freeze"]["type"])

    assert kind(freeze_type=CONTINUOUS_STRATEGY) == "continuous"
    assert kind(freeze_type=INTERVAL_STRATEGY) == "interval"


def test_the_default_freeze_type(auto_boost: Callable[..., Any]) -> None:
    assert auto_boost("O0", manual("grad_freeze"))._freeze_type == 1
    assert translated(manual("grad_freeze")) == translated(manual("grad_freeze", grad_freeze={"freeze_type": 1}))


def test_the_accumulation_step(auto_boost: Callable[..., Any]) -> None:
    document = manual("grad_accumulation", grad_accumulation={"grad_accumulation_step": 3})
    assert auto_boost("O0", document).grad_accumulation_step == 3
    assert translated(document)["gradient-accumulation"]["steps"] == 3
    assert auto_boost("O0", manual("grad_accumulation")).grad_accumulation_step == 1
    assert translated(manual("grad_accumulation")) == {}
    (note,) = notes(manual("grad_accumulation"))
    assert "accumulates nothing" in note


@pytest.mark.usefixtures("every_pass")
def test_the_flags_of_less_bn(auto_boost: Callable[..., Any]) -> None:
    upstream = auto_boost("O0", manual("less_bn"))
    assert (upstream._fn_flag, upstream._gc_flag) == (True, True)
    assert translated(manual("less_bn")).keys() == {"less-bn", "normalised-head"} | GC
    assert translated(manual("less_bn", less_bn={"fn_flag": False})).keys() == {"less-bn"} | GC
    assert translated(manual("less_bn", less_bn={"gc_flag": False})).keys() == {"less-bn", "normalised-head"}


@pytest.mark.usefixtures("every_pass")
def test_split_points_belong_to_less_bn() -> None:
    common = {"gradient_split_groups": [50, 100]}
    assert translated(manual("less_bn", common=common))["parameter-groups"] == {"split_points": (50, 100)}
    assert "parameter-groups" not in translated(manual("less_bn"))
    assert "parameter-groups" not in translated(manual("grad_freeze", common=common))
    # AutoBoost means to take an int too, but fails on it.
    one = translated(manual("less_bn", common={"gradient_split_groups": 0}))
    assert one["parameter-groups"] == {"split_points": (0,)}


def test_the_guide_names_the_whole_api_every_key_and_every_pass() -> None:
    from mindspore import boost

    guide = (Path(__file__).parents[2] / "docs" / "from-mindspore-boost.md").read_text()
    keys = [key for section in SCHEMA["properties"].values() for key in section["properties"]]
    for name in [*boost.__all__, *SCHEMA["properties"], *keys, *PASS_OF.values(), *(cls.name for cls in FUTURE)]:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", guide), name


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


def test_values_are_checked_where_the_switch_is_off_too() -> None:
    with pytest.raises(bc.Error, match=r"dim_reduce\.rho must be"):
        bc.from_boost_config({"boost": {"mode": "disable_all"}, "dim_reduce": {"rho": "0.5"}})


@pytest.mark.parametrize(
    ("document", "level", "missing", "remaining"),
    [
        ({}, "O1", {"less_bn.fn_flag": "normalised-head"}, {"less-bn", "gradient-freeze"} | GC),
        (
            {},
            "O2",
            {"less_bn.fn_flag": "normalised-head", "boost.adasum": "adasum"},
            {"less-bn", "gradient-freeze"} | GC,
        ),
        (manual("adasum"), "O0", {"boost.adasum": "adasum"}, set()),
        (manual("dim_reduce", "grad_freeze"), "O0", {"boost.dim_reduce": "dim-reduce"}, {"gradient-freeze"}),
        (manual("dim_reduce"), "O1", {"boost.dim_reduce": "dim-reduce", "less_bn.fn_flag": "normalised-head"},
         {"less-bn", "gradient-freeze"} | GC),
        (manual("loss_scale_group", "grad_freeze"), "O0", {"boost.loss_scale_group": "group-loss-scale"},
         {"gradient-freeze"}),
        (
            manual("less_bn", common={"gradient_split_groups": [50]}, less_bn={"fn_flag": False}),
            "O0",
            {"common.gradient_split_groups": "parameter-groups"},
            {"less-bn"} | GC,
        ),
        (
            {**EXAMPLE, "boost": {"mode": "enable_all"}, "grad_accumulation": {"grad_accumulation_step": 2}},
            "O0",
            {
                "less_bn.fn_flag": "normalised-head",
                "common.gradient_split_groups": "parameter-groups",
                "boost.adasum": "adasum",
                "boost.dim_reduce": "dim-reduce",
                "boost.loss_scale_group": "group-loss-scale",
            },
            {"less-bn", "gradient-freeze", "gradient-accumulation"} | GC,
        ),
        (
            EXAMPLE,
            "O2",
            {
                "less_bn.fn_flag": "normalised-head",
                "common.gradient_split_groups": "parameter-groups",
                "boost.adasum": "adasum",
            },
            {"less-bn", "gradient-freeze"} | GC,
        ),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("only_early_passes")
def test_what_has_no_pass_is_one_error_with_a_remedy_that_works(
    document: Document, level: str, missing: dict[str, str], remaining: set[str]
) -> None:
    with pytest.raises(bc.Error) as caught:
        bc.from_boost_config(document, level)
    *lines, remedy = str(caught.value).splitlines()[1:]
    assert len(lines) == len(missing)
    for key, name in missing.items():
        (line,) = [line for line in lines if line.strip().startswith(f"{key} = ")]
        assert line.endswith(f"asks for the pass '{name}'")
    mended = copy.deepcopy(document)
    for section, keys in json.loads(remedy.partition("document: ")[2]).items():
        mended[section] = {**mended.get(section, {}), **keys}
    assert translated(mended, level).keys() == remaining


@pytest.mark.usefixtures("every_pass")
def test_a_pass_that_lacks_the_option_is_refused_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Pass):
        """Has no such option."""

        name = "parameter-groups"

    monkeypatch.setitem(REGISTRY, Other.name, Other)
    with pytest.raises(bc.Error) as caught:
        bc.from_boost_config(manual("less_bn", common={"gradient_split_groups": [50, 100]}))
    assert (
        "common.gradient_split_groups = [50,100] asks for the option 'split_points' of the pass "
        "'parameter-groups'" in str(caught.value)
    )


@pytest.mark.parametrize("switch", SWITCHES)
def test_with_the_passes_of_this_version_a_switch_works_or_is_refused(switch: str) -> None:
    document = {
        **DOCUMENTED,
        "boost": {"mode": "manual", switch: True},
        "grad_accumulation": {"grad_accumulation_step": 2},
    }
    asked, refused = set(), ""
    try:
        asked = set(translated(document))
    except bc.Error as error:
        refused = str(error)
    assert PASS_OF[switch] in asked or "this version lacks what is asked for" in refused


# -- notes -----------------------------------------------------------------------------------------------------


def test_freeze_and_accumulation_work_together_and_it_is_said() -> None:
    document = manual("grad_freeze", "grad_accumulation", grad_accumulation={"grad_accumulation_step": 2})
    assert translated(document).keys() == {"gradient-freeze", "gradient-accumulation"}
    (note,) = notes(document)
    assert "grad_freeze works with grad_accumulation" in note
    assert "total_steps counts optimizer steps" in note


@pytest.mark.usefixtures("every_pass")
def test_dim_reduce_leaves_out_what_it_leaves_out_upstream_and_it_is_said() -> None:
    document = manual("dim_reduce", "less_bn", "grad_freeze", "adasum", "loss_scale_group")
    assert translated(document).keys() == {"dim-reduce", "group-loss-scale"}
    (note,) = notes(document)
    assert "dim_reduce leaves less_bn, grad_freeze, adasum out" in note


# -- files -----------------------------------------------------------------------------------------------------


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "boost.json"
    path.write_text(json.dumps(manual("grad_freeze", grad_freeze={"param_groups": 3})))
    for given in (path, str(path)):
        assert bc.from_boost_config(given).startswith("gradient-freeze{groups=3,")
    path.write_text(json.dumps({"boost": {"mode": 1}}))
    with pytest.raises(bc.Error, match=r"boost\.json: boost\.mode must be a string, not 1"):
        bc.from_boost_config(path)


# -- training --------------------------------------------------------------------------------------------------


def train_upstream(name: str, document: Document, count: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Trains a case in MindSpore's boosted cell: its state before and after. For a process of its own."""
    from mindspore.boost import AutoBoost, BoostTrainOneStepCell

    AutoBoost("O0", document)
    built = build(CASES[name])
    initial = state_of(built.train_step)
    # `sens`, or the cell returns nothing.
    step = BoostTrainOneStepCell(built.loss_network, built.optimizer, sens=1.0).set_train()
    for batch in CASES[name].batches(count):
        step(*native.tensors(batch))
    return initial, state_of(step)


def test_a_document_trains_to_the_weights_of_the_boosted_cell(exported: Callable[[str], Path]) -> None:
    document = manual("grad_accumulation", grad_accumulation={"grad_accumulation_step": 3})
    initial, theirs = native.isolated(train_upstream, "mlp", document, 6)
    program = bc.compile(bc.load(exported("mlp")), bc.from_boost_config(document))
    session = bc.Session(program, device="CPU")
    updated = [session.step(*batch).updated for batch in CASES["mlp"].batches(6)]
    assert updated == [False, False, True] * 2
    ours = session.state()
    # Theirs adds gradients that it has divided, ours divides their sum: one rounding apart.
    assert_close({n: ours[n] for n in initial}, {n: theirs[n] for n in initial}, initial, 1e-5)


ALONE = {
    "less_bn": (manual("less_bn", less_bn={"fn_flag": False, "gc_flag": False}), {"less-bn"}),
    "gc_flag": (manual("less_bn", less_bn={"fn_flag": False}), {"less-bn"} | GC),
    "grad_freeze": (manual("grad_freeze", grad_freeze={"param_groups": 4}), {"gradient-freeze"}),
    "grad_accumulation": (
        manual("grad_accumulation", grad_accumulation={"grad_accumulation_step": 2}),
        {"gradient-accumulation"},
    ),
}


@pytest.mark.parametrize("switch", ALONE)
def test_each_switch_of_the_example_compiles_a_residual_network(switch: str, exported: Callable[[str], Path]) -> None:
    document, expected = ALONE[switch]
    example = {**EXAMPLE, "common": {"device_number": 8}, **document}
    program = bc.compile(bc.load(exported("resnet18")), bc.from_boost_config(example))
    assert {r.name for r in program.reports} == expected
    assert all(r.changed for r in program.reports)


@pytest.mark.filterwarnings("ignore::boost_compile.passes.boost_document.BoostNote")
def test_all_switches_that_exist_train_a_residual_network_together(exported: Callable[[str], Path]) -> None:
    document = manual(
        "less_bn",
        "grad_freeze",
        "grad_accumulation",
        less_bn={"fn_flag": False},
        grad_freeze={"param_groups": 3, "freeze_type": 0, "freeze_p": 0.4, "total_steps": 20},
        grad_accumulation={"grad_accumulation_step": 2},
    )
    program = bc.compile(bc.load(exported("resnet18")), bc.from_boost_config(document))
    gammas = {n for n, v in program.state.items() if v.role == "weight" and n.endswith("gamma")}
    # Of each basic block's two normalisations the first is gone; the stem's and those of three downsamplings stay.
    assert len(gammas) == 1 + 8 + 3
    session = bc.Session(program, device="CPU")
    frozen = []
    for cycle in CASES["resnet18"].cycles(4, 2):
        before, variant = session.state(), session.variant
        results = [session.step(*batch) for batch in cycle]
        assert [r.updated for r in results] == [False, True]
        assert all(np.isfinite(r.loss) for r in results)
        after = session.state()
        weights = {n for n, v in program.state.items() if v.role == "weight"}
        frozen.append(sum(np.array_equal(before[n], after[n]) for n in weights))
        assert (frozen[-1] > 0) == (variant > 0)
        for name in weights:
            if before[name].ndim > 1:  # centralized: no filter's mean moves, up to rounding
                moved = after[name].astype(np.float64) - before[name]
                mean = np.abs(moved.mean(axis=tuple(range(1, moved.ndim)))).max()
                assert mean <= 1e-3 * np.abs(moved).max(), name
    assert frozen[0] == frozen[3] == 0 < frozen[1] < frozen[2]  # more and more, then all over again
