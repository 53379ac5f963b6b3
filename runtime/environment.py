"""What the process environment must hold before MindSpore compiles or runs anything. Imports no MindSpore."""

from __future__ import annotations

import logging
import os
import sys
from importlib import metadata

from ..ir.errors import RuntimeFailure

log = logging.getLogger("boost_compile")

SLOW_CONVOLUTIONS = ("2.9.", "2.10.")
"""MindSpore releases whose oneDNN runs convolutions some 60 times slower on CPUs with AVX-512."""

OLD_PROTOBUF = ("2.8.", "2.9.")
"""MindSpore releases whose generated protobuf code the fast form of protobuf 4 and newer refuses."""


def prepare_environment() -> None:
    """Sets what a session needs, unless the user set it, and says so once on stderr (logger ``boost_compile``).

    - ``ONEDNN_MAX_CPU_ISA=AVX2`` for the MindSpore releases that need it. oneDNN reads it when the first convolution is
      made, so it still helps after MindSpore was imported, but not after a convolution ran.
    - ``MS_COMPILER_CACHE_ENABLE=0`` in place of another value: the cache returns the graph of an older file.

    Raises :class:`RuntimeFailure` when MindSpore is not installed, or not importable with the protobuf that is.
    """
    try:
        version = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        raise RuntimeFailure(
            "running a program needs MindSpore, which is not installed: pip install mindspore"
        ) from None
    _check_protobuf(version)
    if version.startswith(SLOW_CONVOLUTIONS) and "ONEDNN_MAX_CPU_ISA" not in os.environ:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
        late = " Too late for this process if it ran a convolution before." if "mindspore" in sys.modules else ""
        log.warning(
            "set ONEDNN_MAX_CPU_ISA=AVX2, without which MindSpore %s convolves slowly on AVX-512 CPUs "
            "(set it yourself to override).%s",
            version,
            late,
        )
    if os.environ.get("MS_COMPILER_CACHE_ENABLE", "0") != "0":
        os.environ["MS_COMPILER_CACHE_ENABLE"] = "0"
        log.warning("set MS_COMPILER_CACHE_ENABLE=0: the compile cache can return the graph of another program.")


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
