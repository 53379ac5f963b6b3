"""lit's configuration: ``lit tests/passes`` runs every ``.ir`` file by the RUN lines in it (pytest does it too)."""

import os
import shlex
import sys

import lit.formats

python = shlex.quote(sys.executable)
config.name = "passes"  # noqa: F821 - lit defines config
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".ir"]  # noqa: F821
config.test_source_root = os.path.dirname(__file__)  # noqa: F821
config.substitutions = [  # noqa: F821
    ("boost-compile", f"{python} -m boost_compile.tools.compile"),
    ("filecheck", f"{python} -m filecheck"),
]
