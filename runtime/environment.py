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


def prepare_environment() -> None:
    """Sets what a session needs, unless the user set it, and says so once on stderr (logger ``boost_compile``).

    - ``ONEDNN_MAX_CPU_ISA=AVX2`` for the MindSpore releases that need it. oneDNN reads it when the first convolution is
      made, so it still helps after MindSpore was imported, but not after a convolution ran.
    - ``MS_COMPILER_CACHE_ENABLE=0`` in place of another value: the cache returns the graph of an older file.

    Raises :class:`RuntimeFailure` when MindSpore is not installed.
    """
    try:
        version = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        raise RuntimeFailure(
            "running a program needs MindSpore, which is not installed: pip install mindspore"
        ) from None
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
