"""Where the packages stand.

The folders of the package `boost_compile` stand at the root of the repository. An editable install would map them with
an import hook, and no type checker or editor follows a hook. So it leads by a plain path to a folder of links instead,
`build/links/boost_compile/`. Where the system makes no links, the hook stays.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
LINKS = Path("build/links")
FOLDERS = ("ir", "passes", "runtime", "tools")


def make_links() -> bool:
    """Whether `build/links/boost_compile/` now leads to what stands in the folders of the package."""
    package = ROOT / LINKS / "boost_compile"
    api = [path for path in (ROOT / "boost_compile").iterdir() if path.name != "__pycache__"]
    try:
        package.mkdir(parents=True, exist_ok=True)
        for link in package.iterdir():
            if link.is_symlink():  # Python leaves a __pycache__ here
                link.unlink()
        for source in (*(ROOT / name for name in FOLDERS), *api):
            (package / source.name).symlink_to(source, target_is_directory=source.is_dir())
    except OSError:
        return False
    return True


if "editable_wheel" in sys.argv and make_links():
    setup(package_dir={"": str(LINKS)})
else:
    setup(package_dir={"boost_compile": "boost_compile", **{f"boost_compile.{name}": name for name in FOLDERS}})
