"""The normalised head against its formula: what it returns, and its gradients as differences of the loss, by numpy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import Error
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program

from tests.execution import ORDERS, Arrays, initial, train
from tests.material import HERE, batches, material, values

MLP = (HERE / "mlp.ir").read_text()
TWO_LAYERS = (Path(__file__).parent / "normalised_head.ir").read_text()


def compiled(source: Program, options: str = "", before: str = "") -> Program:
    return compile_program(source, f"{before}normalised-head{{{options}}}", reproducer_directory=None)


def edited(text: str, changes: Mapping[str, str] | None = None) -> Program:
    for old, new in (changes or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    return assign_roles(parse_program(text))


def rows_of_length_one(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.sqrt(np.maximum(np.square(matrix).sum(1, keepdims=True), 1e-4))


def dense(x: np.ndarray, w: Arrays, layer: str) -> np.ndarray:
    """A layer: normalised, if it has a multiplier."""
    weight, bias = w[f"{layer}.weight"], w.get(f"{layer}.bias", np.zeros(1))
    multiplier = w.get(f"{layer}.multiplier")
    if multiplier is None:
        return x @ weight.T + bias
    return multiplier * (rows_of_length_one(x) @ rows_of_length_one(weight).T + bias)


def loss(w: Arrays, x: np.ndarray, labels: np.ndarray, hidden: str, output: str) -> float:
    y = dense(np.maximum(dense(x, w, hidden), 0), w, output)
    e = np.exp(y - y.max(1, keepdims=True))
    return float(-np.log((e / e.sum(1, keepdims=True))[range(len(labels)), labels]).mean())


def differences(f: Callable[[Arrays], float], w: Arrays) -> Arrays:
    """The gradient of f at w, in float64."""
    found = {}
    for name, value in w.items():
        slope = np.empty_like(value)
        for i in np.ndindex(value.shape):
            beside = []
            for step in (1e-6, -1e-6):
                moved = value.copy()
                moved[i] += step
                beside.append(f({**w, name: moved}))
            slope[i] = (beside[0] - beside[1]) / 2e-6
        found[name] = slope
    return found


PRODUCT, SUM = "%equiv_15_x:11", "%equiv_17_x:13"
OPERANDS = "%equiv_21_CNode_45:8, %equiv_16_CNode_46:10, "
DENSE = re.sub(rf"  {PRODUCT} = .*\n", "", MLP).replace(f", {PRODUCT}, ", ", ")
DENSE = re.sub(rf"{SUM} = BiasAdd\(.*?\)", f"{SUM} = Dense({OPERANDS}%equiv_18_CNode_47:12)", DENSE)
"""Product and bias in one primitive, as `mindspore.mint` has them."""
NO_BIAS = re.sub(rf"{PRODUCT} = MatMul\(.*?\)", f"{PRODUCT} = Dense({OPERANDS}none)", MLP)
CELLS = MLP.replace("hidden.", "encoder.fc1.").replace("output.", "decoder.fc1.")
SUMMARY = "'output.weight' normalised, with multiplier 'output.multiplier'"


@pytest.mark.parametrize(
    ("text", "options", "layers", "summary"),
    [
        (MLP, "", ["output"], SUMMARY),
        (MLP, "bias=drop", ["output"], SUMMARY),
        (DENSE, "", ["output"], SUMMARY),
        (NO_BIAS, "", ["output"], SUMMARY),
        (CELLS, "layers=every-cell", ["decoder.fc1", "encoder.fc1"], "2 layers normalised: decoder.fc1.weight, enc"),
        (MLP, "layers=every-cell,bias=drop", ["output"], "1 layer normalised: output.weight"),
    ],
)
def test_loss_and_gradients_are_those_of_the_formula(text: str, options: str, layers: list[str], summary: str) -> None:
    source = edited(text)
    found = compiled(source, options)
    (report,) = found.reports
    assert report.summary.startswith(summary)
    weights = [f"{layer}.weight" for layer in layers]
    assert (report.matched, report.changed, report.statistics["weight"]) == (
        len(layers),
        len(layers),
        ", ".join(weights),
    )
    added = [n for layer in layers for n in (f"{layer}.multiplier", f"moments.{layer}.multiplier")]
    assert report.statistics["state added"] == added
    dropped = ["output.bias"] if "drop" in options else []
    assert report.statistics.get("bias dropped", "") == ", ".join(dropped)
    assert report.statistics["nodes after"] == found.graphs["step"].total_nodes()
    assert report.statistics["nodes before"] == source.graphs["step"].total_nodes()
    assert found.state.keys() - source.state.keys() == {*added}
    assert source.state.keys() - found.state.keys() == {n for b in dropped for n in (b, f"moments.{b}")}

    state = values(source)
    state |= {n: np.zeros_like(state[n]) for n in source.state if n.startswith("moments.")}
    ((x, labels),) = batches(source, 1)
    trained = [n for n, v in found.state.items() if v.role == "weight"]
    w = {n: (state[n] if n in state else initial(found, n, {})).astype(np.float64) for n in trained}
    assert all(w[f"{layer}.multiplier"] == 1 for layer in layers)
    hidden, output = ("encoder.fc1", "decoder.fc1") if text is CELLS else ("hidden", "output")
    for multiplier in (1.0, 2.5):
        given = {f"{layer}.multiplier": np.full(1, multiplier) for layer in layers}
        at = {**w, **given}
        slopes = differences(lambda here: loss(here, x.astype(np.float64), labels, hidden, output), at)
        for order in ORDERS:
            results, after = train(found, {**state, **given}, [[x, labels]], order)
            assert float(results[0][1]) == pytest.approx(loss(at, x, labels, hidden, output), rel=1e-5)
            for n in trained:
                np.testing.assert_allclose(after[f"moments.{n}"], slopes[n], rtol=1e-4, atol=2e-6, err_msg=n)
                rate = float(state["learning_rate"])
                np.testing.assert_allclose(after[n], at[n] - rate * slopes[n], rtol=1e-4, atol=2e-6, err_msg=n)


def test_the_multiplier_decays_as_the_weight_does() -> None:
    """Its gradient plus a thousandth of it is what the optimizer takes."""
    found = compiled(material("mlp_adam_decay"))
    state = {n: np.zeros(v.shape, np.float32) for n, v in found.state.items() if v.role == "slot"}
    ((x, labels),) = batches(found, 1)
    given = {n: v for n, v in values(found).items() if found.state[n].role == "weight"}
    given["output.multiplier"] = np.full(1, 40, np.float32)
    _, after = train(found, {**state, **given}, [[x, labels]])
    w = {n: v.astype(np.float64) for n, v in given.items()}
    slopes = differences(lambda here: loss(here, x.astype(np.float64), labels, "hidden", "output"), w)
    for n in ("output.multiplier", "output.weight"):
        np.testing.assert_allclose(after[f"moment1.{n}"], 0.1 * (slopes[n] + 0.001 * w[n]), rtol=1e-4, atol=2e-6)


DW = "  %dw2 = MatMul(%dy, %hidden, true, false) : float32[4,3]"
LOAD = '  %l2 = Load(%head.weight, umonad) : float32[4,3] primal {unique_id = "2"}'
DZ = '  %dy = OnesLike(%y) primal {forward_unique_id = "7"}'
Z = '  %z = MatMul(%hidden, %l2, false, true) : float32[5,4] primal {unique_id = "5"}'
RATE = "state %rate"
REFUSED = {
    "%z (MatMul) cannot be normalised: it is no MatMul of its input with a weight as it stands": {
        Z: f'  %c = Neg(%l2) primal {{unique_id = "50"}}\n{Z.replace("%l2", "%c")}',
    },
    "is float16[5,3], no float32 matrix": {"float32": "float16"},
    "%tied takes its weight too": {LOAD: f'{LOAD}\n  %tied = Neg(%l2) primal {{unique_id = "50"}}'},
    "the gradient of 'head.weight' is no product with the layer's input": {
        DW: DW.replace("%dw2", "%dw") + "\n  %dw2 = Neg(%dw) : float32[4,3]",
    },
    "%more (Neg) takes the gradient of its result too": {
        DZ: f'{DZ}\n  %more = Neg(%dy) primal {{forward_unique_id = "5"}}',
    },
    "%more (MatMul) takes the gradient of its result too": {
        DZ: f'{DZ}\n  %more = MatMul(%dy, %hidden, true, false) : float32[4,3] primal {{forward_unique_id = "5"}}',
    },
    "%more (Neg) of the backward part takes its weight too": {
        DZ: f'{DZ}\n  %more = Neg(%l2) primal {{forward_unique_id = "5"}}',
    },
    "%z (MatMul) cannot be normalised: it may stand inside function 'head'": {
        "-> (loss) {": f"""-> (loss) {{
  func @head(%hidden: float32[5,3], %l2: float32[4,3]) {{
  {Z}
    return %z
  }}""",
        f'{{unique_id = "4"}}\n{Z}': '{unique_id = "4"}\n  %z = call(@head, %hidden, %l2) : float32[5,4]',
    },
    "a state is called 'head.multiplier' already": {RATE: "state %head.multiplier: float32[1]\nstate %rate"},
    "a state is called 'moments.head.multiplier' already": {
        RATE: "state %moments.head.multiplier: float32[1]\nstate %rate"
    },
    "no dense layer: no product of a value with a matrix that is trained": {
        "MatMul(%x, %l1, false, true)": "Show(%x, %l1)",
        "MatMul(%hidden, %l2, false, true)": "Show(%hidden, %l2)",
    },
    "its bias 'head.bias' cannot be dropped: ": {
        '%loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "7"}': (
            '%shown = Neg(%l3) primal {unique_id = "51"}\n'
            '  %loss = ReduceSum(%shown, (), false, false) : float32[] primal {unique_id = "7"}'
        ),
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_normalised_is_refused(message: str) -> None:
    source = edited(TWO_LAYERS, REFUSED[message])
    with pytest.raises(Error) as caught:
        compiled(source, "bias=drop" if "bias" in message else "")
    assert message in str(caught.value)


def test_the_last_layer_of_a_cell_is_the_one_that_was_made_last() -> None:
    """As the order of the slots says; without slots, the one that is used last."""
    moments = [line for line in MLP.split("\n") if line.startswith("state %moments.")]
    text = edited(MLP.replace("\n".join(moments), "\n".join([*moments[2:], *moments[:2]])))
    for source, last, other in ((text, "hidden", "output"), (edited(MLP), "output", "hidden")):
        (report,) = compiled(source, "layers=every-cell").reports
        assert report.statistics["weight"] == f"{last}.weight"
        reason = f"'{last}.weight' is the last one of its cell"
        assert [(m.site, m.reason) for m in report.misses] == [(f"{other}.weight", reason)]
    plain = re.sub(
        r"ApplyMomentum\(%(\S+), \S+, %rate, (\S+), %momentum", r"ApplyGradientDescent(%\1, %rate, \2", TWO_LAYERS
    )
    plain = re.sub(r"state %(moments|momentum).*\n", "", plain)
    (report,) = compiled(edited(plain), "layers=every-cell").reports
    assert report.statistics["weight"] == "head.weight"
    assert report.summary == "1 layer normalised: head.weight"


def test_a_layer_of_more_dimensions_than_two_stays_in_its_cell() -> None:
    """It is exported between two reshapes. Asked for alone, it is normalised; upstream's layer does not take it."""
    deep = edited(
        TWO_LAYERS,
        {
            "first.weight": "cell.first.weight",
            "  %hidden = MatMul(": "  %flat = MatMul(",
            Z: f"""  %h3 = Reshape(%flat, (1, 5, 3)) : float32[1,5,3] primal {{unique_id = "40"}}
  %hidden = Reshape(%h3, (5, 3)) : float32[5,3] primal {{unique_id = "41"}}
{Z}""",
            "%loss = ReduceSum(%y,": """%y3 = Reshape(%y, (1, 5, 4)) : float32[1,5,4] primal {unique_id = "42"}
  %loss = ReduceSum(%y3,""",
        },
    )
    assert compiled(deep).reports[0].statistics["weight"] == "head.weight"
    (report,) = compiled(deep, "layers=every-cell").reports
    assert report.statistics["weight"] == "cell.first.weight"
    ((site, reason),) = ((m.site, m.reason) for m in report.misses)
    assert site == "head.weight"
    assert "it is applied to 3 dimensions, and upstream's layer takes a matrix" in reason


def test_a_layer_of_zeros_has_slots_of_zeros() -> None:
    """That both are zeros makes no copy of a weight of a slot."""
    found = compiled(material("mlp"))
    assert not material("mlp").state["output.weight"].initial.any()
    assert found.state["moments.output.multiplier"].initial == 0


def test_a_product_of_weights_is_no_layer() -> None:
    """It stands behind the last layer, but nothing is put through it."""
    more = """
  %both = MatMul(%l1, %l1, false, true) : float32[3,3] primal {unique_id = "60"}
  %loss ="""
    (report,) = compiled(edited(TWO_LAYERS, {"\n  %loss =": more})).reports
    assert report.statistics["weight"] == "head.weight"


def test_a_product_with_a_vector_is_no_layer() -> None:
    more = """
  %row = Reshape(%l3, (4, 1)) : float32[4,1] primal {unique_id = "60"}
  %score = MatMul(%y, %row, false, false) : float32[5,1] primal {unique_id = "61"}
  %loss ="""
    (report,) = compiled(edited(TWO_LAYERS, {"\n  %loss =": more})).reports
    assert report.statistics["weight"] == "head.weight"
