"""Goes through all steps on a device; exits with 1 where one fails or the device cannot be used."""

from __future__ import annotations

import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import cache, partial
from importlib.metadata import version
from itertools import repeat
from pathlib import Path

import click

import boost_compile as bc
from tests.conftest import export_once, zoo_folder

from ..programs import PIPELINES
from .table import Table

TRAINED = ("mlp_adam", "lenet_bn", "gpt", "resnet18")
AS = ("legalize", "accumulate", "fused", "dynamic-scale", "skip-micro", "global-norm", "centralize", "clean")
"""Of the test networks, and of the pipelines by their short names; as these MindSpore trains natively."""
VERIFIED = (*TRAINED, "mlp", "mlp_half_compute", "scaled_dynamic", "branch")
TIMED = ("legalize", "accumulate", "dynamic-scale")
STEPS = 200


@click.command()
@click.option("--device", type=click.Choice(["CPU", "GPU", "Ascend"]), required=True)
@click.option("--network", "networks", multiple=True, help="Of the test networks, in place of the chosen ones.")
@click.option("--pipeline", "pipelines", type=click.Choice([*PIPELINES]), multiple=True, help="By its short name.")
@click.option("--quick", is_flag=True, help="Leave out properties that take long, and time few steps.")
def main(device: str, networks: tuple[str, ...], pipelines: tuple[str, ...], quick: bool) -> None:
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # before CUDA's libraries are loaded
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:  # it stays on the CPU
        names = networks or VERIFIED
        sources = dict(zip(names, pool.map(export_once, names, repeat(zoo_folder())), strict=True))
    report = bc.check_device(device)
    print(report, flush=True)
    if not report.usable:
        sys.exit(1)
    _settle(device)
    print(f"\n{device}: {'; '.join([_name(device), *_software(device)])}")
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for table in tables(device, networks, pipelines, sources, Path(folder), quick=quick):
            problems += table.print()
    print("".join(f"\n{problem}" for problem in problems))
    sys.exit(1 if problems else 0)


def tables(
    device: str,
    networks: Sequence[str],
    pipelines: Sequence[str],
    sources: Mapping[str, Path],
    folder: Path,
    *,
    quick: bool,
) -> Iterator[Table]:
    """One for each step, in order. `sources` are the files that a CPU exported; `folder` is for those of the device."""
    # They run something when they are loaded, so the device must be set.
    from tests.networks import CASES, export

    from ..native import NATIVE
    from . import operations, promises, speed, training

    trained = networks or TRAINED
    as_native = [pipeline for pipeline in pipelines or AS if pipeline in NATIVE]
    exported = cache(lambda network: export(CASES[network], folder, device))
    compared = partial(training.table, device=device, networks=trained)
    yield operations.table()
    yield compared("Compiled against native training", pipelines=as_native, source=sources.__getitem__)
    of_device = f"The same, of files that were exported with the device {device}"
    yield compared(of_device, pipelines=as_native[:2], source=exported)
    yield promises.table(device, networks or VERIFIED, pipelines or AS, sources.__getitem__, quick=quick)
    yield speed.table(device, trained, pipelines or TIMED, sources.__getitem__, 10 if quick else STEPS)


def _settle(device: str) -> None:
    """The same numbers each time, in float32 as it is."""
    import mindspore

    mindspore.set_deterministic(True)
    if device == "GPU":
        from mindspore.device_context.gpu import op_precision

        op_precision.matmul_allow_tf32(False)
        op_precision.conv_allow_tf32(False)


def _name(device: str) -> str:
    """What the device calls itself."""
    if device == "CPU":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    import mindspore

    return str(mindspore.hal.get_device_name(0, device))


def _software(device: str) -> Iterator[str]:
    """The day, the versions, and on a GPU the driver and the libraries that are loaded."""
    yield f"{date.today()}, MindSpore {version('mindspore')}, Python {platform.python_version()}"
    if device != "GPU":
        return
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        yield f"driver {subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0]}"
    except (OSError, subprocess.CalledProcessError, IndexError):
        yield "driver not known (no nvidia-smi)"
    maps = Path("/proc/self/maps").read_text().split()
    loaded = {Path(word).name for word in maps if word.startswith("/") and Path(word).name.startswith("libcu")}
    yield ", ".join(sorted(name for name in loaded if name.startswith(("libcublas.", "libcudart.", "libcudnn."))))


if __name__ == "__main__":
    main()
