"""Mutation without guidance: where there is no atheris."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from .__main__ import inputs, keep
from .readers import READERS, mutated
from .trial import trial

POOL = 500
ACCEPTED = 0.02
"""How often a mutated input becomes a start of others."""


def run(name: str, seconds: float, seed: int, findings: Path) -> None:
    reader, random = READERS[name], Random(seed)
    pool = [*reader.seeds(), *inputs(name)]
    until = time.monotonic() + seconds
    tried = 0
    for data in pool:
        _try(name, data, findings)
    while time.monotonic() < until:
        data = mutated(reader, random.choice(pool), random)
        _try(name, data, findings)
        tried += 1
        if random.random() < ACCEPTED and len(data) < 20_000:
            if len(pool) > POOL:
                pool.pop(random.randrange(len(reader.seeds()), len(pool)))
            pool.append(data)
    print(f"{name}: {tried} inputs", flush=True)


def _try(name: str, data: bytes, findings: Path) -> None:
    found = trial(READERS[name], data)
    if found is not None:
        keep(findings, name, data, found.signature, found.detail)
