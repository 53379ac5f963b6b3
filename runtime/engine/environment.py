"""The process environment that MindSpore needs before it compiles or runs anything. Imports no MindSpore."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from functools import cache
from importlib import metadata

from ...ir.analysis.convolutions import convolves
from ...ir.core.errors import RuntimeFailure
from ...ir.core.graph import Graph

log = logging.getLogger("boost_compile")

SLOW_CONVOLUTIONS = ("2.9.", "2.10.")
"""MindSpore releases whose oneDNN runs most convolutions some 60 times slower with AVX-512."""

BUILT_FOR_NUMPY_1 = ("2.8.", "2.9.", "2.10.")
"""MindSpore releases whose extension was compiled with numpy 1.x. 2.8 and 2.9 declare it, 2.10 does not."""

OLD_PROTOBUF = ("2.8.", "2.9.")
"""MindSpore releases whose generated protobuf code the fast form of protobuf 4 and newer refuses."""


def prepare_environment(graphs: Iterable[Graph]) -> None:
    """Sets what a session that runs ``graphs`` needs, unless the user set it.

    - ``ONEDNN_MAX_CPU_ISA=AVX2`` for the MindSpore releases that need it, where a graph holds a convolution that does;
      matrix products are faster without it. oneDNN reads it when its first primitive is made, so it still helps after
      MindSpore was imported, but not after it ran anything.
    - ``MS_COMPILER_CACHE_ENABLE=0`` in place of another value, which it says once on stderr (logger
      ``boost_compile``): the cache returns the graph of an older file.

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
    if unset and version.startswith(SLOW_CONVOLUTIONS) and any(map(convolves, graphs)):
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    if os.environ.get("MS_COMPILER_CACHE_ENABLE", "0") != "0":
        os.environ["MS_COMPILER_CACHE_ENABLE"] = "0"
        log.warning("set MS_COMPILER_CACHE_ENABLE=0: the compile cache can return the graph of another program.")


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
