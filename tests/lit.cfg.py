"""lit's configuration: ``lit tests`` runs every ``.ir`` file by its RUN lines (pytest does it too, by text_ir.py).

    // RUN: %opt %s --passes "dead-code-elimination" | %filecheck %s

``%opt`` reads text IR, runs a pipeline and prints the display form; ``%full`` prints the full form. ``%lowered`` prints
what a session hands to MindSpore to stderr. ``%inspect`` is boost-inspect, whose formats print analyses; ``%lines`` is
a FileCheck whose patterns match whole lines. ``boost-compile`` and ``filecheck`` by themselves are the commands of this
interpreter.
"""

import os
import shlex
import sys
import tempfile

import lit.formats

python = shlex.quote(sys.executable)
command = f"{python} -m boost_compile.tools.compile"
compile_ = f"{command} --quiet --emit text -o -"
word = r"(?<![\w/%.-]){}(?= )"  # a command, and no part of a path

config.name = "boost-compile"  # noqa: F821 - lit defines config and lit_config
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".ir"]  # noqa: F821
config.test_source_root = os.path.dirname(__file__)  # noqa: F821
config.test_exec_root = lit_config.params.get("exec_root") or os.path.join(  # noqa: F821
    tempfile.gettempdir(), f"boost-compile-lit-{os.getuid()}"
)
config.substitutions = [  # noqa: F821
    (word.format("filecheck"), f"{python} -m filecheck"),
    (word.format("boost-compile"), command),
    ("%lowered", f"{python} -m boost_compile.tools.run --print-lowered"),
    ("%opt", f"{compile_} --no-annotations"),
    ("%full", compile_),
    ("%inspect", f"{python} -m boost_compile.tools.inspect"),
    ("%lines", f"{python} -m filecheck --match-full-lines"),
    ("%filecheck", f"{python} -m filecheck"),
    ("%python", python),
]
