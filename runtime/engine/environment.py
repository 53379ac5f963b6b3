"""The process environment that MindSpore needs before it compiles or runs anything. Imports no MindSpore."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from typing import Any

from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph, Node
from ...ir.core.primitives import Family, named
from ...ir.core.types import TensorType

log = logging.getLogger("boost_compile")

SLOW_CONVOLUTIONS = ("2.9.", "2.10.")
"""MindSpore releases whose oneDNN runs most convolutions some 60 times slower with AVX-512."""

BUILT_FOR_NUMPY_1 = ("2.8.", "2.9.", "2.10.")
"""MindSpore releases whose extension was compiled with numpy 1.x. 2.8 and 2.9 declare it, 2.10 does not."""

OLD_PROTOBUF = ("2.8.", "2.9.")
"""MindSpore releases whose generated protobuf code the fast form of protobuf 4 and newer refuses."""


def prepare_environment(graphs: Iterable[Graph]) -> None:
    """Sets what a session that runs ``graphs`` needs, unless the user set it, and says so once on stderr (logger
    ``boost_compile``).

    - ``ONEDNN_MAX_CPU_ISA=AVX2`` for the MindSpore releases that need it, where a graph holds a convolution that does;
      matrix products are faster without it. oneDNN reads it when its first primitive is made, so it still helps after
      MindSpore was imported, but not after it ran anything.
    - ``MS_COMPILER_CACHE_ENABLE=0`` in place of another value: the cache returns the graph of an older file.

    Also warns, once a process, of a numpy that MindSpore was not built for.

    Raises :class:`RuntimeFailure` when MindSpore is not installed, or not importable with the protobuf that is.
    """
    try:
        version = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        raise RuntimeFailure(
            "running a program needs MindSpore, which is not installed: pip install mindspore"
        ) from None
    _check_protobuf(version)
    _warn_of_numpy()
    unset = "ONEDNN_MAX_CPU_ISA" not in os.environ
    if unset and version.startswith(SLOW_CONVOLUTIONS) and any(_convolves(graph) for graph in graphs):
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
        late = (
            " Too late for this process if MindSpore ran anything in it before." if "mindspore" in sys.modules else ""
        )
        log.warning(
            "set ONEDNN_MAX_CPU_ISA=AVX2, without which MindSpore %s convolves slowly on AVX-512 CPUs "
            "(set it yourself to override).%s",
            version,
            late,
        )
    if os.environ.get("MS_COMPILER_CACHE_ENABLE", "0") != "0":
        os.environ["MS_COMPILER_CACHE_ENABLE"] = "0"
        log.warning("set MS_COMPILER_CACHE_ENABLE=0: the compile cache can return the graph of another program.")


def _convolves(graph: Graph) -> bool:
    """Whether it holds a convolution that such a oneDNN is slow at: forward or to the input. Gradients of weights are
    matrix products to it."""
    kinds = named(Family.CONVOLUTION, Family.TRANSPOSED_CONVOLUTION)
    return any(node.op.name in kinds and node.num_operands > 1 and not _is_product(node) for node in graph.all_nodes())


def _is_product(node: Node) -> bool:
    """Whether such a oneDNN takes a convolution for a product: one point, of every pixel, without edges and groups."""
    filters = node.operand(1).type
    if not isinstance(filters, TensorType) or any(size != 1 for size in filters.shape[2:]):
        return False
    ones = ("stride", "strides", "group", "groups")
    edges = ("pad", "pad_list")
    return all(n == 1 for n in _numbers(node, ones, 1)) and not any(_numbers(node, edges, 0))


def _numbers(node: Node, names: Iterable[str], default: int) -> Iterator[Any]:
    for name in names:
        value = node.attributes.get(name, default)
        yield from value if isinstance(value, tuple) else (value,)


def numpy_mismatch() -> str | None:
    """The message where numpy 2 or newer is installed beside a MindSpore that was built for numpy 1; None elsewhere."""
    import numpy as np

    mindspore = metadata.version("mindspore")
    if not mindspore.startswith(BUILT_FOR_NUMPY_1) or int(np.__version__.partition(".")[0]) < 2:
        return None
    return f"MindSpore {mindspore} is built for numpy 1.x, numpy {np.__version__} is installed: pip install 'numpy<2'"


@cache
def _warn_of_numpy() -> None:
    """A session's graphs run all the same: what fails is outside of them."""
    message = numpy_mismatch()
    if message is not None:
        log.warning("%s. As it is, building networks and reading datasets can fail.", message)


def _check_protobuf(mindspore: str) -> None:
    """MindSpore does not declare this, and a failed import of it ends in an abort of the process."""
    from google import protobuf
    from google.protobuf.internal import api_implementation

    if not mindspore.startswith(OLD_PROTOBUF) or "mindspore" in sys.modules or api_implementation.Type() == "python":
        return
    if not protobuf.__version__.startswith("3."):
        raise RuntimeFailure(
            f"MindSpore {mindspore} cannot be imported with protobuf {protobuf.__version__}: pip install "
            f"'protobuf<3.21' 'onnx<1.18', or set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python before Python starts"
        )
