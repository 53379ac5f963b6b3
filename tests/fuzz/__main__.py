"""``python -m tests.fuzz --seconds 300 [READER …]``: looks for inputs that a reader does not take well.

Guided by coverage with atheris (the extra `fuzz`), else by plain mutation. Findings go to --findings, one file for each
defect; what goes to tests/fuzz/corpus/READER/ from there is tried by every later run and by test_corpus.py.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
CORPUS = Path(__file__).parent / "corpus"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", help="by default all of them, an equal share of the time each")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--findings", type=Path, default=Path(".cache/fuzz"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="without atheris")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    guided = not chosen.plain and importlib.util.find_spec("atheris") is not None
    if chosen.one:
        # Only the one: what is imported already is not watched for coverage.
        importlib.import_module(f".{'guided' if guided else 'plain'}", __package__).run(
            chosen.readers[0], chosen.seconds, chosen.seed, chosen.findings
        )
        return 0
    from .readers import READERS

    unknown = set(chosen.readers) - set(READERS)
    if unknown:
        parser.error(f"no reader {', '.join(sorted(unknown))} (known: {', '.join(READERS)})")
    names = chosen.readers or list(READERS)
    print(
        f"{'atheris' if guided else 'plain mutation'}, seed {chosen.seed}, {chosen.seconds / len(names):.0f} s a reader"
    )
    failed = False
    for name in names:
        # A process each: coverage is one reader's, and what a defect leaves behind too.
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(chosen.seconds / len(names))]
        command += ["--findings", str(chosen.findings), "--seed", str(chosen.seed)] + ["--plain"] * chosen.plain
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
        executed = _EXECUTED.search(done.stderr)
        if executed:
            print(f"{name}: {executed[1]} inputs", flush=True)
        if done.returncode:
            failed = True
            print(f"{name}: the fuzzer itself ended with {done.returncode}:\n{done.stderr[-2000:]}", flush=True)
    found = sorted(p for p in chosen.findings.glob("*/*") if p.suffix != ".txt")
    print(f"{len(found)} findings" + (f" in {chosen.findings}" if found else ""))
    return 1 if found or failed else 0


def keep(findings: Path, reader: str, data: bytes, signature: str, detail: str) -> None:
    """Keeps the smallest input for each defect, and what it did."""
    folder = findings / reader
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(signature.encode()).hexdigest()[:12]
    if path.exists() and path.stat().st_size <= len(data):
        return
    if not path.exists():
        print(f"  {reader}: {signature}", flush=True)
    path.write_bytes(data)
    path.with_suffix(".txt").write_text(f"{signature}\n{detail}", encoding="utf-8", errors="backslashreplace")


def inputs(reader: str) -> list[bytes]:
    """The corpus of a reader."""
    folder = CORPUS / reader
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []


if __name__ == "__main__":
    sys.exit(main())
