"""Mutation guided by coverage: atheris, which is libFuzzer for Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

LONGEST = 20_000


def run(name: str, seconds: float, seed: int, findings: Path) -> None:
    """Does not return: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["boost_compile"], enable_loader_override=False):
        from .__main__ import inputs, keep
        from .readers import READERS, mutated
        from .trial import trial

        reader = READERS[name]
        for data in reader.seeds():
            trial(reader, data)  # loads what is loaded on first use

    def one(data: bytes) -> None:
        found = trial(reader, data)
        if found is not None:
            keep(findings, name, data, found.signature, found.detail)

    def mutator(data: bytes, max_size: int, number: int) -> bytes:
        random = Random(number)
        if random.random() < 0.2:
            return bytes(atheris.Mutate(data, max_size))
        return mutated(reader, data, random)[:max_size]

    folder = TemporaryDirectory(prefix="boost-fuzz-corpus-")
    for i, data in enumerate([*reader.seeds(), *inputs(name)]):
        Path(folder.name, str(i)).write_bytes(data)
    quiet = ["-verbosity=0", "-print_final_stats=1"]
    limits = [f"-max_total_time={max(1, int(seconds))}", f"-max_len={LONGEST}", "-timeout=60", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *quiet, *limits, f"-seed={seed + 1}", folder.name], one, custom_mutator=mutator)
    sys.stdout.flush()
    atheris.Fuzz()
    os._exit(0)
