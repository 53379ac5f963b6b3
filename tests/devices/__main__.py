"""`make test-devices`: runs programs on the stand-ins for devices and says what became of them.

Without options, the programs of cover.txt on both devices. Exits with 1 where an outcome is none that `known.py` knows.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import click

from .build import NotPossible
from .cover import chosen
from .known import fails, judge
from .programs import DEVICES, NATIVE, PIPELINES, Job
from .running import run


@click.command()
@click.option("--device", "devices", type=click.Choice([*DEVICES]), multiple=True, help="One alone.")
@click.option("--network", "networks", multiple=True, help="Of the test networks, in place of the chosen programs.")
@click.option(
    "--pipeline", "pipelines", type=click.Choice([*PIPELINES, NATIVE]), multiple=True, help="By its short name."
)
@click.option("--all", "everything", is_flag=True, help="Every network; with every pipeline, unless some are named.")
@click.option("--part", nargs=2, type=click.IntRange(1), metavar="K N", help="Every N-th program, from the K-th on.")
@click.option("--processes", default=2, show_default=True)
def main(
    devices: tuple[str, ...],
    networks: tuple[str, ...],
    pipelines: tuple[str, ...],
    everything: bool,
    part: tuple[int, int] | None,
    processes: int,
) -> None:
    from tests.conftest import export_once, zoo_folder
    from tests.networks import CASES

    def source(name: str) -> Path:
        return export_once(name, zoo_folder())

    failed = False
    for device in devices or DEVICES:
        jobs = chosen()[device]
        if everything or networks or pipelines:
            asked = [Job(n, p) for n in networks or CASES for p in pipelines or PIPELINES]
            jobs = [job for job in asked if not fails(device, job)]
            if len(jobs) < len(asked):
                print(
                    f"{device}: left out, because they are known to fail (known.py): {len(asked) - len(jobs)} programs"
                )
        if part is not None:
            jobs = jobs[part[0] - 1 :: part[1]]
        began = time.monotonic()
        try:
            outcomes = run(device, jobs, source, processes=processes)
        except NotPossible as reason:
            print(f"{device}: not run: {reason}")
            continue
        problems = judge(device, outcomes, source)
        counts = Counter(outcome.end for outcome in outcomes)
        told = ", ".join(f"{count} {what}" for what, count in counts.most_common())
        print(f"{device}: {len(outcomes)} programs in {time.monotonic() - began:.0f} s: {told}")
        for text in problems:
            print(f"not as it should be: {text}\n")
        failed |= bool(problems)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
