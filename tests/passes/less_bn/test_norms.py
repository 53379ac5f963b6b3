"""BatchNorms that cannot be removed, each with the reason: variants of the graph in less_bn.ir."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program

TEXT = re.sub(r"^//.*\n", "", (Path(__file__).parent / "less_bn.ir").read_text(), flags=re.M)
ELEMENTS = "(float32[1,2,4,4], float32[2], float32[2], float32[2], float32[2])"


def edited(changes: dict[str, str]) -> Program:
    text = TEXT
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return assign_roles(parse_program(text))


def compiled(changes: dict[str, str], options: str = "") -> Program:
    return compile_program(edited(changes), f"less-bn{{{options}}}", reproducer_directory=None)


A1 = '%a1 = TupleGetItem(%n1, 0) primal {unique_id = "7"}'
GRAD = "%dn1 = BatchNormGrad(%dr, %c1, %gamma1, %s1, %v1, %e1, true, 1e-05, 0)"
KEPT = {
    "its gamma 'gamma1' serves another BatchNorm too": {
        "BatchNorm(%c2, %gamma2,": "BatchNorm(%c2, %gamma1,",
    },
    "it has 2 gradient nodes": {
        GRAD: f"%dnx = BatchNormGrad(%dy, %c1, %gamma1, %s1, %v1, %e1, true, 1e-05, 0) : "
        f'(float32[1,2,4,4], float32[2], float32[2]) primal {{forward_unique_id = "6"}}\n  {GRAD}',
    },
    "%shown (Neg) takes a statistic of the batch from it": {
        A1: f'{A1}\n  %mean = TupleGetItem(%n1, 1) primal {{unique_id = "70"}}\n'
        '  %shown = Neg(%mean) primal {unique_id = "71"}',
    },
    "%shown (Show) takes all results of %n1 at once": {
        A1: f'{A1}\n  %shown = Show(%n1) : float32[2] primal {{unique_id = "70"}}',
    },
}


@pytest.mark.parametrize("reason", KEPT)
def test_what_cannot_go_stays_and_says_why(reason: str) -> None:
    with pytest.raises(PassError, match="matched nothing") as caught:
        compiled(KEPT[reason], "select=scope,scope=*/block/bn1")
    assert f"kept: {reason}" in str(caught.value)


def test_a_result_that_is_written_in_place_is_no_obstacle() -> None:
    """The sum has a result of its own by then, though what the BatchNorm takes is needed elsewhere."""
    over = "%over = InplaceAddExt(%a1, %x, 1, umonad) : float32[1,2,4,4]"
    changes = {
        A1: f'{A1}\n  {over} primal {{unique_id = "70"}}\n  %other = Neg(%c1) primal {{unique_id = "71"}}',
        "%t0 = UpdateState(umonad, %n0,": "%t0 = UpdateState(umonad, %over, %n0,",
    }
    assert [report.changed for report in compiled(changes, "select=scope,scope=*/block/bn1").reports] == [1, 1]


def test_a_gradient_by_another_gamma_is_not_its_own() -> None:
    """Where statistics are frozen, input and gamma alone tell whose gradient it is."""
    turned = "%turned = Neg(%gamma1)\n  %dn1 = BatchNormGrad(%dr, %c1, %turned, %mean1, %var1, %mean1, false, 1e-05, 0)"
    with pytest.raises(PassError, match=r"gamma1: kept: %dn1 \(BatchNormGrad\) of the backward part takes it too"):
        compiled({"%var1, true,": "%var1, false,", GRAD: turned})


def test_a_batch_norm_inside_a_function_stays() -> None:
    norm = "BatchNorm(%c1, %gamma1, %beta1, %mean1, %var1, true, 1e-05, 0.1, 0, umonad)"
    own = ["%c1: float32[1,2,4,4]", *(f"%{n}1: float32[2]@{n}1" for n in ("gamma", "beta", "mean", "var"))]
    found = {
        norm: "call(@norm, %c1, %gamma1, %beta1, %mean1, %var1)",
        "-> (loss) {": f"""-> (loss) {{
  func @norm({", ".join(own)}) {{
    %n1 = {norm} : {ELEMENTS} scope("Default/block/bn1") primal {{unique_id = "6"}}
    return %n1
  }}""",
    }
    with pytest.raises(PassError) as caught:
        compiled(found, "select=scope,scope=*/block/bn1")
    assert "kept: it stands inside function 'norm'" in str(caught.value)


def test_where_upstream_knows_no_block() -> None:
    """The main branch comes second here."""
    assert compiled({}, "select=pattern-or-inner").reports[0].statistics["removed"] == ["gamma1"]
    with pytest.raises(PassError, match=r"gamma0: kept: boost\.LessBN keeps it"):
        compiled({}, "select=pattern")


def test_frozen_statistics() -> None:
    """The gradient then takes nothing that forward saved; it is known by the input and gamma. All of it goes."""
    found = compiled(
        {
            "%var1, true,": "%var1, false,",
            GRAD: "%dn1 = BatchNormGrad(%dr, %c1, %gamma1, %mean1, %var1, %mean1, false, 1e-05, 0)",
        }
    )
    names = [node.op.name for node in found.graphs["step"]]
    assert (names.count("BatchNorm"), names.count("BatchNormGrad")) == (2, 1)
    assert not [n for n in found.state if n.endswith("1") and n not in ("w1", "m_w1")]


def test_gamma_that_is_loaded_and_cast() -> None:
    found = compiled(
        {
            "  %n1 = BatchNorm(%c1, %gamma1,": '  %lg = Load(%gamma1, umonad) : float32[2] primal {unique_id = "60"}\n'
            "  %n1 = BatchNorm(%c1, %lg,",
            "BatchNormGrad(%dr, %c1, %gamma1,": "BatchNormGrad(%dr, %c1, %lg,",
        }
    )
    assert found.reports[0].statistics["removed"] == ["gamma1"]
    assert "gamma1" not in found.state


def test_what_does_not_stand_in_the_way() -> None:
    """Waiting for a statistic; an operation in place, where nobody else takes what it overwrites."""
    over = "%over = InplaceMul(%a1, %a1, umonad) {side_effect_mem = true} : float32[1,2,4,4]"
    found = compiled(
        {
            A1: f'{A1}\n  {over} primal {{unique_id = "70"}}',
            "%t0 = UpdateState(umonad, %n0, %n1,": "%both = MakeTuple(%n1, %n2)\n"
            "  %t0 = UpdateState(umonad, %n0, %n1, %s1, %over, %both,",
        }
    )
    assert found.reports[-1].statistics["removed"] == ["gamma1"]


def test_one_behind_the_other() -> None:
    found = compiled(
        {
            "%c1 = Conv2D(%a0, %l1)": "%c1 = ReLU(%a0)",
            "  %dw1 = Conv2DBackpropFilter(%dc1, %a0, (2, 2, 1, 1))": "  %dw1 = Show(%dc1, %a0)",
            "%n1 = BatchNorm(%c1,": "%n1 = BatchNorm(%a0,",
            "BatchNormGrad(%dr, %c1,": "BatchNormGrad(%dr, %a0,",
        },
        "select=scope,scope=*bn*",
    )
    assert found.reports[0].statistics["BatchNorms removed"] == 3
    assert next(n for n in found.graphs["step"] if n.name == "r1").operand(0).name == "x"


def test_elements_behind_a_depend() -> None:
    found = compiled(
        {
            A1: f'%d1 = Depend(%n1, %x) : {ELEMENTS} primal {{unique_id = "70"}}\n'
            '  %a1 = TupleGetItem(%d1, 0) primal {unique_id = "7"}',
        }
    )
    assert found.reports[0].statistics["removed"] == ["gamma1"]
    assert found.graphs["step"].total_nodes() < edited({}).graphs["step"].total_nodes()
    relu = next(n for n in found.graphs["step"] if n.name == "r1")
    assert relu.operand(0).name == "c1"


def test_a_network_without_batch_norms() -> None:
    from tests.material import material

    with pytest.raises(PassError, match="step: the forward part has no BatchNorm"):
        compile_program(material("mlp"), "less-bn")
