"""Patch convolutions and their gradients as products compute what convolutions compute, by numpy."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program

from tests.execution import run_graph

ATTRIBUTES = (
    'kernel_size = (4, 2), pad_mode = "pad", pad_list = (0, 0, 0, 0), stride = (1, 1, 4, 2), group = 1, '
    'dilation = (1, 1, 1, 1), format = "NCHW"'
)


def text(attributes: str, n: str = "2", image: tuple[int, int] = (8, 6), kernel: tuple[int, int] = (4, 2)) -> str:
    (height, width), (kh, kw) = image, kernel
    x, w, y = f"{n},3,{height},{width}", f"5,3,{kh},{kw}", f"{n},5,{height // kh},{width // kw}"
    return f"""
graph @both(%x: float32[{x}], %w: float32[{w}], %dy: float32[{y}], %sizes: int64[4]) {{
  %y = Conv2D(%x, %w) {{{attributes}}} : float32[{y}]
  %dw = Conv2DBackpropFilter(%dy, %x, ({w})) {{{attributes}}} : float32[{w}]
  %dx = Conv2DBackpropInput(%dy, %w, %sizes) {{{attributes}}} : float32[{x}]
  %all = MakeTuple(%y, %dw, %dx)
  return %all
}}"""


@pytest.mark.parametrize("n", ["2", "?"])
def test_products_compute_the_same(n: str) -> None:
    source = parse_program(text(ATTRIBUTES, n))
    found = compile_program(source, "patch-convolution")
    (report,) = found.reports
    assert (report.matched, report.changed) == (3, 3)
    assert report.summary == "3 convolutions and gradients of such are products"
    assert not [node for node in found.graphs["both"] if "Conv2D" in node.op.name]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 8, 6), (5, 3, 4, 2), (2, 5, 2, 3))]
    sizes = np.array([2, 3, 8, 6])
    ours = run_graph(found.graphs["both"], [*given, sizes], {})
    # numpy's convolution takes the size of an image from the type.
    whole = parse_program(text(ATTRIBUTES)).graphs["both"]
    theirs = run_graph(whole, [*given, sizes], {})
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def changed(old: str, new: str) -> str:
    assert old in ATTRIBUTES
    return ATTRIBUTES.replace(old, new)


@pytest.mark.parametrize(
    "attributes",
    [
        changed(", group = 1", ""),
        changed("stride = (1, 1, 4, 2)", "stride = (4, 2)"),
        changed("dilation = (1, 1, 1, 1)", "dilation = 1"),
        changed('pad_mode = "pad", pad_list = (0, 0, 0, 0)', "pad = 0"),
        changed('pad_mode = "pad", pad_list = (0, 0, 0, 0)', 'pad_mode = "SAME", pad_list = (1, 1, 1, 1)'),
        changed('pad_mode = "pad", pad_list = (0, 0, 0, 0)', 'pad_mode = "valid", pad = (1, 1, 1, 1)'),
        changed(', format = "NCHW"', ""),
        changed('format = "NCHW"', 'data_format = "NCHW"'),
        changed('format = "NCHW"', 'format = "NCHW", data_format = "NHWC"'),
    ],
)
def test_other_ways_to_write_it(attributes: str) -> None:
    assert compile_program(parse_program(text(attributes)), "patch-convolution").reports[0].changed == 3


def test_square_kernels_may_be_one_number() -> None:
    square = changed("kernel_size = (4, 2)", "kernel_size = 2").replace("stride = (1, 1, 4, 2)", "stride = 2")
    source = parse_program(text(square, kernel=(2, 2)))
    assert compile_program(source, "patch-convolution").reports[0].changed == 3


OVERLAP = "its windows overlap, or leave pixels out: the stride is not the size of the kernel"
KEPT = [
    (changed('"NCHW"', '"NHWC"'), (8, 6), (4, 2), "it is not of NCHW"),
    (changed('format = "NCHW"', 'data_format = "NHWC"'), (8, 6), (4, 2), "it is not of NCHW"),
    (changed("group = 1", "group = 3"), (8, 6), (4, 2), "it has 3 groups"),
    (changed("stride = (1, 1, 4, 2)", "stride = (1, 1, 4, 1)"), (8, 6), (4, 2), OVERLAP),
    (changed("stride = (1, 1, 4, 2)", "stride = (1, 1, 2, 2)"), (8, 6), (4, 2), OVERLAP),
    (changed("kernel_size = (4, 2), ", ""), (8, 6), (4, 2), OVERLAP),
    (changed("stride = (1, 1, 4, 2), ", "").replace("(4, 2)", "2"), (8, 6), (2, 2), OVERLAP),
    (changed("kernel_size = (4, 2)", "kernel_size = (4,)"), (8, 6), (4, 2), OVERLAP),
    (changed("dilation = (1, 1, 1, 1)", "dilation = (1, 1, 1, 2)"), (8, 6), (4, 2), "its kernel is dilated"),
    (changed("dilation = (1, 1, 1, 1)", "dilation = (1, 1, 2, 1)"), (8, 6), (4, 2), "its kernel is dilated"),
    (changed("(0, 0, 0, 0)", "(0, 0, 0, 1)"), (8, 6), (4, 2), "it has padding"),
    (changed('pad_mode = "pad", pad_list = (0, 0, 0, 0)', "pad = 1"), (8, 6), (4, 2), "it has padding"),
    (changed("(4, 2)", "(1, 1)").replace("4, 2", "1, 1"), (8, 6), (1, 1), "a kernel of one point is a product already"),
    (ATTRIBUTES, (9, 6), (4, 2), "an image of 9 x 6 is no multiple of the kernel of 4 x 2"),
    (ATTRIBUTES, (8, 7), (4, 2), "an image of 8 x 7 is no multiple of the kernel of 4 x 2"),
]


@pytest.mark.parametrize(("attributes", "image", "kernel", "reason"), KEPT)
def test_other_convolutions_stay_and_say_why(
    attributes: str, image: tuple[int, int], kernel: tuple[int, int], reason: str
) -> None:
    source = parse_program(text(attributes, image=image, kernel=kernel))
    with pytest.warns(UserWarning, match="matched nothing"):
        found = compile_program(source, "patch-convolution?")
    (report,) = found.reports
    assert (report.matched, report.changed) == (0, 0)
    assert [(m.site, m.reason) for m in report.misses] == [(f"%{n}", reason) for n in ("y", "dw", "dx")]


@pytest.mark.parametrize("shape", ["?,3,?,6", "2,3,8,?", "2,?,8,6"])
def test_a_shape_that_is_not_known(shape: str) -> None:
    source = parse_program(text(ATTRIBUTES).replace("float32[2,3,8,6]", f"float32[{shape}]"))
    with pytest.warns(UserWarning, match="matched nothing"):
        (report,) = compile_program(source, "patch-convolution?", verify_each=False).reports
    assert {m.reason for m in report.misses} == {"the shape of %x is not known", "the shape of %dx is not known"}
