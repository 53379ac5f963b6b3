"""Which gradients lose their mean, which do not and why; and that they lose it, by numpy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program

import boost_compile as bc
from tests.execution import train
from tests.graphs import program
from tests.material import material

TEXT = (Path(__file__).parent / "lower_gradient_centralization.ir").read_text()
BOTH = "tag-gradient-centralization,lower-gradient-centralization"
STAYS = {
    "grouped": "weight of a grouped or depthwise convolution (%deep)",
    "table": "looked up by Gather (%found): an embedding (embeddings=true tags it)",
    "scale": "no convolution or matrix product takes it, but Mul",
    "head": "no convolution or matrix product takes it, but L2Normalize",
    "bias": "it has one axis at most: nothing is left to take a mean over",
    "frozen": "frozen, or its gradient is a constant",
}
TAGGED = {"dense": [1], "filter": [1, 2, 3], "half": [1], "turned": [1]}


def edited(*changes: tuple[str, str]) -> Program:
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return assign_roles(parse_program(text))


def tags(of: Program) -> dict[str, Any]:
    return {n: list(v.info["centralize"]) for n, v in of.state.items() if "centralize" in v.info}


def misses(of: Program, number: int = 0) -> dict[str, str]:
    return {m.site: m.reason for m in of.reports[number].misses}


def test_every_weight_is_tagged_or_has_a_reason() -> None:
    found = compile_program(edited(), BOTH)
    assert tags(found) == TAGGED
    assert misses(found) == STAYS
    tag, lowered = found.reports
    assert (tag.matched, tag.changed, tag.summary) == (4, 4, "4 weights tagged for gradient centralization")
    assert (lowered.matched, lowered.changed, lowered.summary) == (4, 4, "4 gradients centralized")
    assert lowered.misses == []


CONV = "Conv2D(%image, %f) {group = 1}"


@pytest.mark.parametrize(
    ("changes", "tagged", "reason"),
    [
        ([(CONV, "DepthwiseConv2dNative(%image, %f)")], False, "weight of a grouped or depthwise convolution (%maps)"),
        ([(CONV, "Conv2DExt(%image, %f, none, 1, 0, 1, 2)")], False, STAYS["grouped"].replace("deep", "maps")),
        ([(CONV, "Conv2DExt(%image, %f, none, 1, 0, 1, 1)")], True, ""),
        ([(CONV, "Conv2DExt(%image, %f, none, 1, 0, 1, %rows)")], True, ""),
        ([(CONV, "Conv2D(%image, %f) {groups = 2}")], False, STAYS["grouped"].replace("deep", "maps")),
        # As the image of a convolution it is no weight of one.
        ([(CONV, "Conv2D(%f, %image) {group = 2}")], False, "no convolution or matrix product takes it, but Conv2D"),
        ([(CONV, "Stack(%f) {axis = 0}")], False, "no convolution or matrix product takes it, but Stack"),
    ],
)
def test_the_node_that_takes_a_weight_decides(changes: list[tuple[str, str]], tagged: bool, reason: str) -> None:
    found = compile_program(edited(*changes), "tag-gradient-centralization")
    assert ("filter" in tags(found)) == tagged
    assert misses(found).get("filter", "") == reason


def test_weights_joined_for_a_recurrent_layer() -> None:
    """Where nothing else takes what they are joined into."""
    found = compile_program(material("lstm"), "tag-gradient-centralization")
    assert tags(found) == {n: [1] for n in ("lstm.weight_ih_l0", "lstm.weight_hh_l0", "head.weight")}
    text = (Path(__file__).parents[1] / "material/lstm.ir").read_text()
    joined = re.search(r"%(\S+_weights:\d+) = Concat\(.*primal \{unique_id.*\n", text)
    assert joined
    more = f'  %shown = Neg(%{joined[1]}) : float32[480,1,1] primal {{unique_id = "1"}}\n'
    other = assign_roles(parse_program(text.replace(joined[0], joined[0] + more)))
    found = compile_program(other, "tag-gradient-centralization")
    assert tags(found) == {"head.weight": [1]}
    assert misses(found)["lstm.weight_ih_l0"] == "no convolution or matrix product takes it, but Concat"


@pytest.mark.parametrize("axes", [[0], [1], [0, 1]])
def test_a_tag_may_name_any_axes(axes: list[int]) -> None:
    source = assign_roles(parse_program(LINEAR))
    source.state["w"].info["centralize"] = axes
    found = compile_program(source, "lower-gradient-centralization")
    assert [r.name for r in found.reports] == ["lower-gradient-centralization"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3) ** 2
    after = train(found, {}, [[x]])[1]
    np.testing.assert_allclose(after["w"], -(x - x.mean(tuple(axes), keepdims=True)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("axes", [[], [2], [-1], [True], 1, "1", [0.0]])
def test_a_tag_that_names_no_axes_is_refused(axes: Any) -> None:
    source = assign_roles(parse_program(LINEAR))
    source.state["w"].info["centralize"] = axes
    with pytest.raises(PassError, match=r"the tag 'centralize' of weight 'w' is .*: it must list axes of"):
        compile_program(source, "lower-gradient-centralization")


LINEAR = """
state %w: float32[2,3] role=weight
state %other: float32[2,3] role=weight
state %rate: float32[]<1.0> role=hyperparameter
graph @step(%x: float32[2,3]) -> (loss) {
  %w0 = Load(%w, umonad) : float32[2,3] primal {unique_id = "1"}
  %y = MatMul(%x, %w0, false, true) : float32[2,2] primal {unique_id = "2"}
  %loss = ReduceSum(%y, (), false) : float32[] primal {unique_id = "3"}
  %g = Mul(%x, float32[]<1.0>) : float32[2,3] primal {forward_unique_id = "2"}
  %u = UpdateState(umonad, %y)
  %up = ApplyGradientDescent(%w, %rate, %g, %u) : float32[2,3]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""


def test_tagged_weights_that_cannot_be_centralized_have_a_reason() -> None:
    source = assign_roles(parse_program(LINEAR))
    for name in ("w", "other"):
        source.state[name].info["centralize"] = [1]
    found = compile_program(source, "lower-gradient-centralization")
    (report,) = found.reports
    assert misses(found) == {"other": "nothing updates it from a gradient"}
    assert (report.matched, report.changed, report.summary) == (1, 1, "1 gradient centralized")
    again = compile_program(found, "lower-gradient-centralization?", allow_no_match=True)
    assert misses(again, -1) == {
        "w": "its gradient is centralized already",
        "other": "nothing updates it from a gradient",
    }
    assert (again.reports[-1].matched, again.reports[-1].changed) == (1, 0)
    twice = LINEAR.replace(
        "  %end = UpdateState(%u, %up)",
        '  %mid = UpdateState(%u, %up)\n  %h = Neg(%g) primal {forward_unique_id = "3"}\n'
        "  %more = ApplyGradientDescent(%w, %rate, %h, %mid) : float32[2,3]\n  %end = UpdateState(%mid, %more)",
    )
    source = assign_roles(parse_program(twice))
    source.state["w"].info["centralize"] = [1]
    with pytest.raises(PassError, match=r"matched nothing.* joined by the cell itself"):
        compile_program(source, "lower-gradient-centralization")
    found = compile_program(source, "lower-gradient-centralization?", allow_no_match=True)
    assert misses(found) == {"w": "updated from several gradients one after the other, or joined by the cell itself"}
    assert found.reports[0].changed == 0


def test_a_tag_alone_is_no_match() -> None:
    source = assign_roles(parse_program(LINEAR))
    source.state["other"].info["centralize"] = [1]
    with pytest.raises(PassError, match=r"matched nothing(.|\n)*other: nothing updates it from a gradient"):
        bc.compile(source, "lower-gradient-centralization")


def test_a_program_without_tags_brings_the_tagging_along() -> None:
    found = compile_program(program(LINEAR), "lower-gradient-centralization")
    assert [r.name for r in found.reports] == ["tag-gradient-centralization", "lower-gradient-centralization"]
