"""The configuration of mindspore.boost, judged by AutoBoost itself: the same switches, keys and defaults; and by
training: one document brings MindSpore's boosted cell and ours to the same weights."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.passes.configuration.boost_document import LEVELS, SCHEMA, SWITCHES

import boost_compile as bc
from tests import native
from tests.compare import assert_close
from tests.networks import CASES, build, state_of
from tests.passes.configuration.documents import BASIS, EXAMPLE, GC, Document, manual, notes, ran, translated

MODES = ("auto", "manual", "enable_all", "disable_all")
PASS_OF = {
    "less_bn": "less-bn",
    "grad_freeze": "gradient-freeze",
    "adasum": "adasum",
    "grad_accumulation": "gradient-accumulation",
    "dim_reduce": "dim-reduce",
    "loss_scale_group": "group-loss-scale",
}


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


# -- switches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("given", [(), ("adasum",), ("less_bn", "grad_accumulation"), SWITCHES])
@pytest.mark.parametrize("value", [True, False])
def test_switches_are_those_of_auto_boost(
    level: str, mode: str | None, given: tuple[str, ...], value: bool, auto_boost: Callable[..., Any]
) -> None:
    boost: Document = dict.fromkeys(given, value)
    if mode is not None:
        boost["mode"] = mode
    document = {"boost": boost, "grad_accumulation": {"grad_accumulation_step": 2}, "dim_reduce": BASIS}
    upstream = auto_boost(level, document)
    on = {switch for switch, is_on in upstream.boost_config.items() if is_on}
    if "loss_scale_group" in on:  # the training cell then does not come to it
        on -= {"dim_reduce"}
    if "dim_reduce" in on:  # AutoBoost.network_auto_process_train returns before it comes to these
        on -= {"less_bn", "grad_freeze", "adasum"}
    asked = translated(document, level)
    assert {switch for switch, name in PASS_OF.items() if name in asked} == on


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_alone(level: str, auto_boost: Callable[..., Any]) -> None:
    on = {switch for switch, is_on in auto_boost(level, "").boost_config.items() if is_on}
    for asked in (translated(None, level), translated({}, level)):
        assert {switch for switch, name in PASS_OF.items() if name in asked} == on


# -- keys and defaults -----------------------------------------------------------------------------------------

ATTRIBUTES = {  # section and key: the attribute of AutoBoost, the pass, its option
    ("common", "device_number"): ("device_number", "adasum", "devices_per_group"),
    ("grad_freeze", "param_groups"): ("_param_groups", "gradient-freeze", "groups"),
    ("grad_freeze", "freeze_p"): ("_freeze_p", "gradient-freeze", "probability"),
    ("grad_freeze", "total_steps"): ("_total_steps", "gradient-freeze", "total_steps"),
    **{("dim_reduce", key): (key, "dim-reduce", key) for key in ("rho", "gamma", "alpha", "sigma", "n_components")},
}
OTHER_VALUES = {int: 7, float: 0.25}


def test_the_keys_are_all_that_auto_boost_reads() -> None:
    from mindspore.boost import AutoBoost, GroupLossScaleManager

    sections = {name: list(s["properties"]) for name, s in SCHEMA["properties"].items() if name != "boost"}
    assert sections.pop("loss_scale_group") == list(inspect.signature(GroupLossScaleManager).parameters)
    assert sorted(k for keys in sections.values() for k in keys) == sorted(AutoBoost._boost_config_func_map)


@pytest.mark.parametrize(("section", "key"), ATTRIBUTES)
def test_values_and_defaults_reach_the_pass_as_they_reach_auto_boost(
    section: str, key: str, auto_boost: Callable[..., Any]
) -> None:
    attribute, name, opt = ATTRIBUTES[section, key]
    switch = next(s for s, p in PASS_OF.items() if p == name)
    plain = manual(switch, dim_reduce=BASIS)
    default = getattr(auto_boost("O0", plain), attribute)
    assert translated(plain)[name][opt] == default
    value = OTHER_VALUES[type(default)]
    changed = {**plain, section: {**plain.get(section, {}), key: value}}
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
    assert translated(manual("grad_freeze"))["gradient-freeze"]["after"] == "repeat"


def test_the_accumulation_step(auto_boost: Callable[..., Any]) -> None:
    document = manual("grad_accumulation", grad_accumulation={"grad_accumulation_step": 3})
    assert auto_boost("O0", document).grad_accumulation_step == 3
    assert translated(document)["gradient-accumulation"]["steps"] == 3
    assert auto_boost("O0", manual("grad_accumulation")).grad_accumulation_step == 1
    assert translated(manual("grad_accumulation")) == {}
    (note,) = notes(manual("grad_accumulation"))
    assert "accumulates nothing" in note


def test_the_flags_of_less_bn(auto_boost: Callable[..., Any]) -> None:
    upstream = auto_boost("O0", manual("less_bn"))
    assert (upstream._fn_flag, upstream._gc_flag) == (True, True)
    assert translated(manual("less_bn")).keys() == {"less-bn", "normalised-head"} | GC
    assert translated(manual("less_bn", less_bn={"fn_flag": False})).keys() == {"less-bn"} | GC
    assert translated(manual("less_bn", less_bn={"gc_flag": False})).keys() == {"less-bn", "normalised-head"}


@pytest.mark.parametrize(
    "given", [{"pca_mat_path": "a.npy"}, {"weight_load_dir": "b"}, {"weight_load_dir": "b", **BASIS}]
)
def test_the_basis_is_the_file_before_the_directory(given: Document, auto_boost: Callable[..., Any]) -> None:
    upstream = auto_boost("O0", manual("dim_reduce", dim_reduce=given))
    basis = upstream.pca_mat_path or upstream.weight_load_dir
    assert translated(manual("dim_reduce", dim_reduce=given))["dim-reduce"]["basis"] == basis


def test_the_guide_names_the_whole_api_every_key_and_every_pass() -> None:
    from mindspore import boost

    guide = (Path(__file__).parents[3] / "docs" / "from-mindspore-boost.md").read_text()
    keys = [key for section in SCHEMA["properties"].values() for key in section["properties"]]
    for name in [
        *boost.__all__,
        *SCHEMA["properties"],
        *keys,
        *PASS_OF.values(),
        "normalised-head",
        "parameter-groups",
    ]:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", guide), name


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
    "fn_flag": (manual("less_bn", less_bn={"gc_flag": False}), {"less-bn", "normalised-head"}),
    "gc_flag": (manual("less_bn", less_bn={"fn_flag": False}), {"less-bn"} | GC),
    "split_groups": (
        manual("less_bn", common={"gradient_split_groups": [20, 40]}),
        {"less-bn", "normalised-head", "parameter-groups"} | GC,
    ),
    "grad_freeze": (manual("grad_freeze", grad_freeze={"param_groups": 4}), {"gradient-freeze"}),
    "grad_accumulation": (
        manual("grad_accumulation", grad_accumulation={"grad_accumulation_step": 2}),
        {"gradient-accumulation"},
    ),
    "adasum": (manual("adasum"), {"adasum", "data-parallel"}),
    "loss_scale_group": (manual("loss_scale_group"), {"group-loss-scale", "overflow-check"}),
    "dim_reduce": (manual("dim_reduce", dim_reduce={"n_components": 3}), {"dim-reduce"}),
    "O0": ({}, set()),
    "O1": ({}, {"less-bn", "normalised-head", "gradient-freeze"} | GC),
    "O2": ({}, {"less-bn", "normalised-head", "gradient-freeze", "adasum", "data-parallel"} | GC),
    "enable_all": (
        {"boost": {"mode": "enable_all"}, "grad_accumulation": {"grad_accumulation_step": 2}},
        {"less-bn", "normalised-head", "gradient-freeze", "adasum", "data-parallel", "group-loss-scale",
         "overflow-check", "gradient-accumulation"} | GC,
    ),
}  # fmt: skip
"""The example document with one switch on, a level, and a mode: what is asked for, and the passes that must change
something."""


@pytest.fixture(scope="module")
def basis(exported: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three directions in the space of resnet18's weights."""
    state = bc.load(exported("resnet18")).state
    random = np.random.default_rng(0)
    size = sum(v.type.size for v in state.values() if v.role == "weight" and v.trainable)
    path = tmp_path_factory.mktemp("basis") / "basis.npy"
    np.save(path, np.linalg.qr(random.standard_normal((size, 3)))[0].T.astype(np.float32))
    return str(path)


@pytest.mark.filterwarnings("ignore::boost_compile.passes.configuration.boost_document.BoostNote")
@pytest.mark.slow
@pytest.mark.parametrize("what", ALONE)
def test_every_switch_level_and_mode_trains_a_residual_network(
    what: str, exported: Callable[[str], Path], request: pytest.FixtureRequest
) -> None:
    document, expected = ALONE[what]
    level = what if what in LEVELS else "O0"
    example = {**EXAMPLE, "common": {"device_number": 8}, **document}
    if what == "dim_reduce":
        example["dim_reduce"] = {**example["dim_reduce"], "pca_mat_path": request.getfixturevalue("basis")}
    program = bc.compile(bc.load(exported("resnet18")), bc.from_boost_config(example, level))
    assert {r.name for r in program.reports if r.changed} - {"legalize"} == ran(expected)
    session = bc.Session(program)
    before = session.state()
    results = [session.step(*batch) for batch in CASES["resnet18"].batches(2 * program.micro_batches())]
    assert all(np.isfinite(r.loss) for r in results)
    assert results[-1].updated
    after = session.state()
    moved = [n for n, v in program.state.items() if v.role == "weight" and not np.array_equal(before[n], after[n])]
    assert len(moved) > 10


@pytest.mark.filterwarnings("ignore::boost_compile.passes.configuration.boost_document.BoostNote")
@pytest.mark.parametrize("switch", ["less_bn", "fn_flag", "gc_flag", "grad_freeze", "grad_accumulation", "O2"])
def test_each_switch_of_the_example_compiles_a_residual_network(switch: str, exported: Callable[[str], Path]) -> None:
    document, expected = ALONE[switch]
    example = {**EXAMPLE, "common": {"device_number": 8}, **document}
    level = switch if switch in LEVELS else "O0"
    program = bc.compile(bc.load(exported("resnet18")), bc.from_boost_config(example, level))
    assert {r.name for r in program.reports} - {"legalize"} == ran(expected)
    assert all(r.changed for r in program.reports)


@pytest.mark.filterwarnings("ignore::boost_compile.passes.configuration.boost_document.BoostNote")
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
