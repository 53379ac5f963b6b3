"""The lists of kernels are what this MindSpore's plug-ins say."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.kernels import kernels
from boost_compile.ir.core.kernels.table import Kernels

from . import read_kernels


@pytest.mark.slow
@pytest.mark.mindspore
@pytest.mark.parametrize("target", ["cpu", "gpu", "ascend"])
def test_the_lists_are_what_the_plugins_say(target: str) -> None:
    devices = pytest.importorskip("tests.devices.build")
    try:
        found = Kernels(read_kernels.read(target))
    except devices.NotPossible as error:
        pytest.skip(str(error))
    kept = kernels(target)
    assert found.names() == kept.names()
    for name in found.names():
        assert (found.ways(name), set(found.of(name))) == (kept.ways(name), set(kept.of(name))), name


def test_lines_of_the_walker_become_words() -> None:
    lines = (
        "B\t43:17,35:11\t43\t\nA\t43:17,35:11\t43\t\nC\t42:17\t42\trepeated\nC\t\t\texpanded\nD\t35:14\t30\tunchecked\n"
    )
    assert read_kernels.compact(lines) == "A B: f32,#i64>f32\nC: f16*>f16 expanded\nD: any\n"
