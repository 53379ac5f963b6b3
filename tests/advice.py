"""What a command's message may advise."""

from __future__ import annotations

import importlib
import re

COMMANDS = {
    f"boost-{name}": importlib.import_module(f"boost_compile.tools.{name}").command
    for name in ("compile", "inspect", "run", "verify", "reduce", "prove")
}
OPTIONS = {
    name: {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")} | {"--help"}
    for name, command in COMMANDS.items()
}

OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z](?![\w-]))")
PYTHON = re.compile(r"(?<![\w{,=-])\w+=[^\s;,]+|\b[a-z_]+\.?[a-z_]*\(\)|\bload_state\b")
SPELLED = re.compile(r"--[a-z-]+ \S+=\S+|such as \w+=\d+|\b[A-Z_]+=|Tensor\(shape=\[None, …\]\)")
"""Values of options, environment variables, and what a network is exported with."""


def wrong_advice(text: str, commands: list[str]) -> list[str]:
    """The words of a message that the users of these commands cannot act on."""
    found = []
    for match in OPTION.finditer(text):
        named = re.findall(r"boost-(?:compile|inspect|run|verify|reduce)(?![\w-])", text[: match.start()])
        doors = named[-1:] or commands
        found += [f"{match[1]} is no option of {door}" for door in doors if match[1] not in OPTIONS[door]]
    return found + [f"{match[0]} is Python" for match in PYTHON.finditer(SPELLED.sub("", text))]
