"""Whether a device can be used: its software, its arithmetic, and the kernels that a program needs."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from ...ir.analysis.targets import advice, described, lacking, on_cpu
from ...ir.core.kernels import kernels
from ...ir.core.program import Program
from ...ir.core.wording import counted
from .device import OTHERWISE, Finding, first_paragraph, machine, named_device
from .environment import numpy_mismatch


@dataclass(frozen=True)
class DeviceReport:
    """What :func:`check_device` found, in the order in which it looked."""

    device: str
    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        """Whether everything is as it should be."""
        return all(finding.good for finding in self.findings)

    def __str__(self) -> str:
        verdict = "can be used" if self.usable else "cannot be used"
        return "\n".join([*map(str, self.findings), f"{self.device} {verdict}"])


def check_device(device: str, program: Program | None = None) -> DeviceReport:
    """Looks at MindSpore, at what ``device`` ("CPU", "GPU", "Ascend") needs of this machine, and at two operations on
    it, an addition and a matrix product, against numpy; with a program also at the kernels that it needs there.

    Runs the operations in this process, so MindSpore is on that device afterwards. Raises :class:`RuntimeFailure` for a
    device of another name only.
    """
    device = named_device(device)
    found = [_versions(), *machine(device)]
    if all(finding.good for finding in found):
        found += _operations(device)
    if program is not None:
        found += _program(program, device)
    return DeviceReport(device, tuple(found))


def _versions() -> Finding:
    try:
        mindspore = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        return Finding("versions", "MindSpore is not installed", "pip install mindspore")
    what = f"MindSpore {mindspore}, Python {platform.python_version()}, numpy {metadata.version('numpy')}"
    return Finding("versions", what, numpy_mismatch() or "")


def _operations(device: str) -> Iterator[Finding]:
    import mindspore
    import numpy as np
    from mindspore import ops

    try:
        if mindspore.get_context("device_target") != device:
            mindspore.set_device(device)
    except Exception as error:
        yield Finding("device", f"MindSpore cannot use it: {first_paragraph(str(error))}", OTHERWISE)
        return
    yield Finding("device", f"MindSpore runs on {device}")

    # Small whole numbers, which every format of products holds exactly, TF32 included.
    numbers = np.arange(64, dtype=np.float32).reshape(8, 8) % 7
    for what, expected in (("add", numbers + numbers), ("matmul", numbers @ numbers)):
        try:
            tensor = mindspore.Tensor(numbers)
            result = getattr(ops, what)(tensor, tensor).asnumpy()
        except Exception as error:
            yield Finding(what, f"failed: {first_paragraph(str(error))}", "Repair what this message names")
            continue
        if np.array_equal(result, expected):
            yield Finding(what, "as numpy computes it")
        else:
            wrong = counted(int((result != expected).sum()), "number")
            yield Finding(what, f"{wrong} of {result.size} differ from numpy", "Do not train on this device")


def _program(program: Program, device: str) -> Iterator[Finding]:
    target = device.lower()
    listed, total = kernels(target).release, sum(graph.total_nodes() for graph in program.graphs.values())
    try:
        installed = metadata.version("mindspore")
    except metadata.PackageNotFoundError:
        installed = listed
    if installed != listed:
        yield Finding("kernels", f"the list is that of MindSpore {listed}, and {installed} is installed")
    graphs = program.graphs.values()
    missing = {described(node, target): node for graph in graphs for node in lacking(graph, target)}
    for what, node in missing.items():
        remedy = f"Compile it for {target}, which replaces what it can. Else: {advice(node)}"
        yield Finding("program", f"{device} has no kernel for {what}", remedy.removesuffix("."))
    elsewhere = sorted({node.op.name for graph in graphs for node in on_cpu(graph, target)})
    if elsewhere:
        yield Finding("program", f"MindSpore runs {', '.join(elsewhere)} on the CPU, for {device} has no kernel")
    if not missing:
        yield Finding("program", f"{device} has kernels for all of its {counted(total, 'node')}")
