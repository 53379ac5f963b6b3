"""Writes docs/licenses.md: under which licences stands what an installation brings, and what development adds.

    python docs/make_licenses.py

pip-licenses reads the metadata of the installed distributions; a licence that is not among the accepted ones ends it
with an error. Which distributions: the dependencies of this project, and theirs in turn.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "boost-compile"
HERE = Path(__file__).parent
VENDORED = [HERE.parent / "tools/views/page/vendor/LICENSES.txt", HERE / "vendor/LICENSES.txt"]

ACCEPTED = ["0BSD", "Apache", "BSD", "CC0", "ISC", "MIT", "MPL-2.0", "Mozilla Public License 2.0", "PSF"]
ACCEPTED += ["Python Software Foundation", "Zlib"]
"""Licences that ask for no more than a notice, and the MPL, which asks for changes of its own files alone."""

HEAD = """# Licences

boost-compile stands under the Apache License 2.0 ([LICENSE](../LICENSE)). It contains no code of its dependencies: pip
installs them. `make licenses` writes this file from what is installed, and fails where a licence is not one of these:
{accepted}.

Written with Python {python} on {system}. Other versions within the bounds of `pyproject.toml` may bring others.
"""


def needed(name: str, extra: str = "") -> set[str]:
    """The distributions that `name` depends on, with theirs in turn; of `name` itself those of one extra, or none."""
    found: set[str] = set()
    waiting = [(name, extra)]
    while waiting:
        of, wanted = waiting.pop()
        for line in requires(of) or ():
            requirement = Requirement(line)
            depends = canonicalize_name(requirement.name)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": wanted}):
                continue
            if depends not in found and is_installed(depends):
                found.add(depends)
                waiting += [(depends, each) for each in ("", *requirement.extras)]
    return found


def is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def table(names: set[str]) -> str:
    """A Markdown table; ends the program where pip-licenses refuses."""
    command = [
        sys.executable,
        "-m",
        "piplicenses",
        "--format=markdown",
        "--with-system",
        "--with-urls",
        "--from=mixed",
        "--order=name",
    ]
    command += ["--partial-match", "--allow-only", ";".join(ACCEPTED), "--packages", *sorted(names)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"pip-licenses refuses: {done.stdout.strip()}")
    return done.stdout


def vendored(file: Path) -> str:
    """Where the licences stand, and what the notices in front of their texts say."""
    notices, _, _ = file.read_text().partition("\n----")
    return f"`{file.relative_to(HERE.parent)}` holds their licences.\n\n{notices.strip()}\n"


def main() -> None:
    run, development = needed(PROJECT), needed(PROJECT, "dev")
    system = f"{platform.system()} {platform.machine()}"
    parts = [HEAD.format(accepted=", ".join(ACCEPTED), python=platform.python_version(), system=system)]
    parts += [f"## What an installation brings\n\n{table(run)}"]
    parts += [f"## What development adds\n\n{table(development - run)}"]
    parts += ["## Files of others in this repository\n", *map(vendored, VENDORED)]
    (HERE / "licenses.md").write_text("\n".join(parts).rstrip() + "\n")


if __name__ == "__main__":
    main()
