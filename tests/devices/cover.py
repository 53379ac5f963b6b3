"""A small set of programs that holds everything that any pass emits, chosen anew by `python -m tests.devices.cover`.

What a program shows a backend is the primitives and the dtypes of their operands; what only holds a graph together does
not count. A pass emits those that the exported file does not hold. The chosen programs hold all that any program holds
so, of any network that is not known to fail, and each pass with at least `NETWORKS` networks.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import click
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.op import CALL
from boost_compile.ir.core.primitives import Family, facts
from boost_compile.ir.core.types import TensorType, TupleType, Type
from boost_compile.passes.framework.manager import InternalError
from boost_compile.passes.framework.registry import REGISTRY

import boost_compile as bc

from .known import fails
from .programs import DEVICES, PIPELINES, Job, compiled, passes

CHOSEN = Path(__file__).parent / "cover.txt"
NETWORKS = 2
BASE = 150
"""What a program costs beside its nodes, in nodes."""

STRUCTURE = (Family.ORDER, Family.TUPLE, Family.CLOSURE)
Signature = tuple[str, ...]
"""A primitive and the dtypes of its operands, each once."""


@dataclass(frozen=True)
class Shown:
    """What a program shows a backend beyond its source, and its number of nodes."""

    signatures: frozenset[Signature]
    nodes: int


def chosen() -> dict[str, list[Job]]:
    """By device, the programs that were chosen."""
    found: dict[str, list[Job]] = {device: [] for device in DEVICES}
    for line in CHOSEN.read_text().splitlines():
        network, pipeline, *devices = line.split()
        for device in devices:
            found[device].append(Job(network, pipeline))
    return found


def signatures(program: bc.Program) -> frozenset[Signature]:
    computing = (n for n in _nodes(program) if n.op is not CALL and facts(n.op).family not in STRUCTURE)
    return frozenset(_signature(node) for node in computing)


def shown(source: bc.Program, program: bc.Program) -> Shown:
    return Shown(signatures(program) - signatures(source), sum(1 for _ in _nodes(program)))


def cover(programs: Mapping[Job, Shown], kept: Collection[Job] = ()) -> list[Job]:
    """The greedy choice: again and again the program that shows most that is new for its cost. `kept` are in it."""
    missing = set[Signature]().union(*(found.signatures for found in programs.values()))
    taken = list(kept)
    missing.difference_update(*(programs[job].signatures for job in kept))

    def take(candidates: Iterable[Job], worth: Mapping[Job, float]) -> None:
        taken.append(
            max(candidates, key=lambda job: (worth[job] / (BASE + programs[job].nodes), -programs[job].nodes, job))
        )
        missing.difference_update(programs[taken[-1]].signatures)

    while missing:
        take(programs, {job: len(found.signatures & missing) for job, found in programs.items()})
    for name in REGISTRY:
        using = {job for job in programs if name in passes(job)}
        for _ in range(NETWORKS):
            had = {job.network for job in using.intersection(taken)}
            others = [job for job in using if job.network not in had and job not in kept]
            if len(had) >= NETWORKS or not others:
                break
            # Of those where it does something, the network that was taken least often.
            networks = Counter(job.network for job in taken)
            take(others, {job: bool(programs[job].signatures) / (1 + networks[job.network]) ** 2 for job in others})
    return sorted(taken)


def every(source: Mapping[str, Path], device: str, jobs: Iterable[Job]) -> dict[Job, Shown]:
    """What each of these programs shows, as far as it compiles for a device and is not known to fail there."""
    found: dict[Job, Shown] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for network, of_network in groupby(sorted(job for job in jobs if not fails(device, job)), lambda j: j.network):
            exported = bc.load(str(source[network]))
            for job in of_network:
                try:
                    program = compiled(job, exported, DEVICES[device], Path(scratch))
                except (bc.Error, InternalError):  # a run tells what it is
                    continue
                found[job] = shown(exported, program)
    return found


def _nodes(program: bc.Program) -> Iterable[Node]:
    return (node for graph in program.graphs.values() for function in graph.all_graphs() for node in function)


def _signature(node: Node) -> Signature:
    dtypes = {dtype for i in range(node.num_operands) for dtype in _dtypes(node.operand(i).type)}
    return (node.op.name, *sorted(dtypes))


def _dtypes(type_: Type) -> set[str]:
    """Of tensors, alone or in a tuple; nothing for scalars and tokens."""
    elements = type_.elements if isinstance(type_, TupleType) else (type_,)
    return {str(e.dtype) for e in elements if isinstance(e, TensorType)}


@click.command()
@click.option("--pipeline", "pipelines", type=click.Choice([*PIPELINES]), multiple=True, help="Choose for it alone.")
def main(pipelines: tuple[str, ...]) -> None:
    from tests.conftest import export_once, zoo_folder
    from tests.networks import CASES

    source = {name: export_once(name, zoo_folder()) for name in CASES}
    devices: dict[Job, list[str]] = {}
    for device in DEVICES:
        kept = [job for job in chosen()[device] if pipelines and job.pipeline not in pipelines]
        asked = [Job(network, pipeline) for network in CASES for pipeline in pipelines or PIPELINES]
        programs = every(source, device, [*kept, *asked])
        for job in cover(programs, kept):
            devices.setdefault(job, []).append(device)
        held = len(set[Signature]().union(*(found.signatures for found in programs.values())))
        print(f"{device}: {len(programs)} programs with {held} emitted signatures")
    CHOSEN.write_text("".join(f"{job} {' '.join(devices[job])}\n" for job in sorted(devices)))
    for device, jobs in chosen().items():
        print(f"{device}: {len(jobs)} programs chosen")


if __name__ == "__main__":
    main()
