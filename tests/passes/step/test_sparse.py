"""A gradient of rows is refused by the passes that need a whole one, and taken by those that do not."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.gradient_path import gradient_paths
from boost_compile.ir.core.errors import PassError
from boost_compile.passes.framework.manager import compile_program
from boost_compile.passes.step.sparse import refuse_sparse, refuse_sparse_weights

from tests.passes.graphs import source as parsed


def test_which_gradient_is_refused() -> None:
    graph = parsed("SPARSE").graphs["step"]
    for refuse, gradients in ((refuse_sparse, gradient_paths(graph)), (refuse_sparse_weights, anatomy(graph).weights)):
        with pytest.raises(PassError, match=r"weight 'w' has a sparse gradient .* which is long: export"):
            refuse(gradients, "which is long")  # type: ignore[operator]
        refuse([one for one in gradients if not one.sparse], "which is long")  # type: ignore[operator, attr-defined]


@pytest.mark.parametrize(
    "passes",
    [
        "gradient-accumulation{steps=2}", "clip-gradients", "clip-gradients{by=value}", "replace-optimizer{to=sgd}",
        "data-parallel", "parameter-groups{weight_decay=0.1}",
    ],
)  # fmt: skip
def test_who_refuses_rows(passes: str) -> None:
    with pytest.raises(PassError, match=r"'w' .*has a sparse gradient|'w' is made of many primitives"):
        compile_program(parsed("SPARSE"), passes)


@pytest.mark.parametrize("passes", ["overflow-check", "freeze{match=v}"])
def test_who_does_not(passes: str) -> None:
    compile_program(parsed("SPARSE"), passes)


def test_what_is_measured_of_the_others() -> None:
    (report,) = compile_program(parsed("SPARSE"), "monitor").reports
    assert any(miss.site == "w" and "is sparse" in miss.reason for miss in report.misses)
