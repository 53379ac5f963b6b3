"""Makes the pictures of the documentation: `make pictures`. Needs Graphviz and Chromium on the PATH.

LeNet-5 is exported and compiled anew; what is drawn is what the commands in docs/inspection.md show.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
MOST = 200_000
"""Bytes of a picture."""
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=8000",
)  # fmt: skip


def command(name: str, *arguments: object) -> None:
    path = Path(sys.executable).with_name(name)
    subprocess.run([str(path), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def photograph(browser: str, report: Path, section: str, picture: Path, width: int, height: int) -> None:
    """One section of a report alone."""
    folder = report.parent
    alone = f"section:not(#{section}), header {{ display: none; }} body {{ padding: 0.6rem; }} h2 {{ margin: 0; }}"
    alone += " .canvas { max-height: none; }"
    page = folder / "section.html"
    page.write_text(report.read_text(encoding="utf-8").replace("</style>", f"{alone}</style>", 1), encoding="utf-8")
    size = f"--window-size={width},{height}"
    flags = [*QUIET, size, f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}"]
    subprocess.run([browser, *flags, page.as_uri()], check=True, stderr=subprocess.DEVNULL, timeout=120)


def main() -> int:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or shutil.which("dot") is None:
        print("make pictures needs Chromium and Graphviz (apt install chromium graphviz)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lenet, program, report = folder / "lenet.mindir", folder / "lenet.boost", folder / "lenet.html"
        subprocess.run([sys.executable, str(EXAMPLES / "lenet.py"), str(lenet)], check=True, stdout=subprocess.DEVNULL)
        flags = ("--accumulate", 4, "--loss-scale", "dynamic", "--clip-norm", 1.0)
        command("boost-compile", lenet, *flags, "-q", "-o", program)
        piece = ("--graph", "accumulate", "--around", "accum.conv2.weight", "--radius", 2)
        command("boost-inspect", program, *piece, "-o", HERE / "around.svg")
        command("boost-inspect", program, "--original", lenet, "-o", report)
        accumulated = folder / "accumulated.boost"
        command("boost-compile", lenet, "--accumulate", 4, "-q", "-o", accumulated)
        command("boost-inspect", accumulated, "--graph", "apply", "-o", HERE / "apply.svg")
        beside = folder / "accumulated.html"
        command("boost-inspect", accumulated, "--original", lenet, "-o", beside)
        photograph(browser, beside, "graphs", HERE / "before-and-after.png", 1200, 800)
        photograph(browser, report, "memory", HERE / "memory.png", 1000, 470)
    large = [p.name for p in HERE.iterdir() if p.stat().st_size > MOST]
    if large:
        print(f"larger than {MOST:,} bytes: {', '.join(large)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
