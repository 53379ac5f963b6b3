"""``python -m boost_compile compile model.mindir …``: the six commands, where their scripts are not on the path."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "compile": "rewrites a training graph",
    "inspect": "shows what a graph or a program holds",
    "prove": "proves that a program trains as its original, without running it",
    "run": "trains",
    "verify": "runs a program beside its original and checks what its passes promise",
    "reduce": "makes the smallest program that shows a failure",
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    name = name.removeprefix("boost-")
    if name in COMMANDS:
        sys.argv[:2] = [f"boost-{name}"]
        import_module(f"boost_compile.tools.{name}").main()
    listed = "".join(f"  {command:8} {what}\n" for command, what in COMMANDS.items())
    usage = f"Usage: python -m boost_compile COMMAND …\n\n{listed}\npython -m boost_compile COMMAND --help says more.\n"
    if name in ("-h", "--help"):
        sys.stdout.write(usage)
        sys.exit(0)
    sys.stderr.write(f"boost-compile: error: there is no command '{name}'\n\n{usage}")
    sys.exit(2)


if __name__ == "__main__":
    main()
