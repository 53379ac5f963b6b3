"""boost-verify's properties of compiled programs, each run beside its original on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from boost_compile.tools.verification.report import Verification

import boost_compile as bc

from ..programs import PIPELINES
from .table import Row, Table


def table(
    device: str,
    networks: Sequence[str],
    pipelines: Sequence[str],
    source: Callable[[str], Path],
    *,
    quick: bool,
) -> Table:
    """A row for each pipeline, over all networks."""
    head = ("pipeline", "networks verified", "largest error")
    rows = (_row(device, networks, pipeline, source, quick) for pipeline in pipelines)
    return Table("boost-verify", head, rows)


def _row(device: str, networks: Sequence[str], pipeline: str, source: Callable[[str], Path], quick: bool) -> Row:
    verified, excess, problems = 0, 0.0, []
    for network in networks:
        try:
            report = _verified(device, source(network), PIPELINES[pipeline], quick=quick)
        except bc.Error as error:
            problems.append(f"{network} {pipeline}: {error}")
            continue
        excess = max([excess, *(r.deviation.excess for r in report.results if r.deviation is not None)])
        if report.verified:
            verified += 1
        else:
            problems.append(f"{network} {pipeline}: {report!r}")
    largest = f"{excess:.2g} of what is allowed" if excess else "none"
    return Row((f"`{pipeline}`", f"{verified} of {len(networks)}", largest), tuple(problems))


def _verified(device: str, source: Path, pipeline: str, *, quick: bool) -> Verification:
    original = bc.load(str(source))
    program = bc.compile(original, pipeline, target=device.lower())
    return bc.verify(original, program, device=device, quick=quick, bisect=False)
