"""`make test-gpu`, `make test-ascend`: the promises on a device that is really there, as a table for docs/targets.md.

Each program runs beside its original on the device, and boost-verify's properties judge it. None of this was run on
a GPU or an Ascend chip so far; with `--device CPU` the same machinery runs anywhere. Exits with 1 where a property
fails or the device cannot be used.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import click
from boost_compile.tools.verification.report import Verification

import boost_compile as bc

from .programs import PIPELINES

NETWORKS = ("mlp", "mlp_adam", "lenet_bn_adam", "gpt", "mlp_half_compute", "scaled_dynamic", "branch")
CHOSEN = ("legalize", "accumulate", "fused", "skip-micro", "dynamic-scale", "global-norm", "centralize", "clean")
"""Of the test networks, and of the pipelines by their short names."""


@dataclass(frozen=True)
class Row:
    """The outcome of one pipeline with all networks. ``excess``: the largest error by its tolerance."""

    pipeline: str
    verified: int
    networks: int
    excess: float
    problems: tuple[str, ...]

    def __str__(self) -> str:
        largest = f"{self.excess:.2g} of what is allowed" if self.excess else "none"
        return f"| `{self.pipeline}` | {self.verified} of {self.networks} | {largest} |"


def rows(device: str, networks: Sequence[str], pipelines: Sequence[str], *, quick: bool) -> Iterator[Row]:
    """Verifies each network with each pipeline on the device."""
    for pipeline in pipelines:
        verified, excess, problems = 0, 0.0, []
        for network in networks:
            try:
                report = _verified(device, network, PIPELINES[pipeline], quick=quick)
            except bc.Error as error:
                problems.append(f"{network} {pipeline}: {error}")
                continue
            excess = max([excess, *(r.deviation.excess for r in report.results if r.deviation is not None)])
            if report.verified:
                verified += 1
            else:
                problems.append(f"{network} {pipeline}: {report!r}")
        yield Row(pipeline, verified, len(networks), excess, tuple(problems))


def _verified(device: str, network: str, pipeline: str, *, quick: bool) -> Verification:
    from tests.conftest import export_once, zoo_folder

    original = bc.load(str(export_once(network, zoo_folder())))
    program = bc.compile(original, pipeline, target=device.lower())
    return bc.verify(original, program, device=device, quick=quick, bisect=False)


@click.command()
@click.option("--device", type=click.Choice(["CPU", "GPU", "Ascend"]), required=True)
@click.option("--network", "networks", multiple=True, help="Of the test networks, in place of the chosen ones.")
@click.option("--pipeline", "pipelines", type=click.Choice([*PIPELINES]), multiple=True, help="By its short name.")
@click.option("--quick", is_flag=True, help="Leave out properties that take long.")
def main(device: str, networks: tuple[str, ...], pipelines: tuple[str, ...], quick: bool) -> None:
    report = bc.check_device(device)
    print(report, flush=True)
    if not report.usable:
        sys.exit(1)
    import mindspore

    mindspore.set_deterministic(True)
    made = f"{date.today()}, MindSpore {version('mindspore')}, Python {platform.python_version()}"
    print(f"\n{device}: {_name(device)}; {made}\n")
    print("| pipeline | networks verified | largest error |\n|---|---|---|")
    found = []
    for row in rows(device, networks or NETWORKS, pipelines or CHOSEN, quick=quick):
        print(row, flush=True)
        found.append(row)
    problems = [problem for row in found for problem in row.problems]
    print("".join(f"\n{problem}" for problem in problems))
    sys.exit(1 if problems else 0)


def _name(device: str) -> str:
    """What the device calls itself."""
    if device == "CPU":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    import mindspore

    return str(mindspore.hal.get_device_name(0, device))


if __name__ == "__main__":
    main()
