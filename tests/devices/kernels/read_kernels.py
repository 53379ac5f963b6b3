"""Writes ir/core/kernels/cpu.txt, gpu.txt and ascend.txt: what MindSpore's plug-ins themselves list, walked in memory.

    python -m tests.devices.kernels.read_kernels [cpu] [gpu] [ascend]

Needs gcc, and for GPU and Ascend the stand-ins of tests/devices, but no card.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from boost_compile.ir.core.kernels import kernels

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CODES = {
    30: "b", 32: "i8", 33: "i16", 34: "i32", 35: "i64", 37: "u8", 38: "u16", 39: "u32", 40: "u64", 42: "f16",
    43: "f32", 44: "f64", 45: "bf16", 51: "c64", 52: "c128", 12: "str",
}  # fmt: skip
"""By MindSpore's number of an element type."""
NUMBERS, SEQUENCES = ("11", "12", "7"), ("13", "14")
"""MindSpore's numbers of what is no tensor: number, string, None; list, tuple."""
PLUGINS = {
    "cpu": ("CPU", "libmindspore_ops_cpu.so"),
    "gpu": ("GPU", "libmindspore_gpu.so.11.6"),
    "ascend": ("Ascend", "libmindspore_ops_ascend.so"),
}
FACTORIES = {
    "cpu": b"N9mindspore6kernel18NativeCpuKernelModE",
    "gpu": b"N9mindspore6kernel18NativeGpuKernelModE",
    "ascend": b"N9mindspore6kernel14AclnnKernelModE",
}
ADAPTERS = ("ascend/libmindspore_ascend_res_manager.so", "_ZN9mindspore6device6ascend12OpAdapterMap3getEv")
"""The adapters to operators of CANN: the library, and its function that returns them."""
AICPU = "ascend/custom_aicpu_ops/op_impl/cpu/config/cust_aicpu_kernel.json"
COLLECTIVE = "AllReduce"
"""Is in the list of kernels for collectives on Ascend, which nothing names."""
EXPANDED = "_ZZN9mindspore8expander16IRBuilderFactory8InstanceEvE8instance"
_BOTH = (
    "ClipByNorm Conv2DTranspose CountNonZero Custom DynamicBroadcastTo HistogramSummary ImageSummary ScalarSummary"
    " TensorSummary"
)
BY_HAND = {
    "cpu": {"expanded": _BOTH},
    "gpu": {"expanded": f"{_BOTH} AlltoAll NeighborExchangeV2 NeighborExchangeV2Grad"},
    "ascend": {
        "expanded": "AdamWeightDecay Lamb SyncBatchNorm SyncBatchNormGrad",
        "hccl": "AlltoAll BatchISendIRecv CollectiveGather CollectiveScatter NeighborExchange NeighborExchangeV2",
    },
}
"""What passes of MindSpore's backends replace before kernels are looked for, and collectives that have another name in
its list. Nothing lists these: they are what the documentation of ``mindspore.ops`` says runs on the platform, and what
the headers of the passes and of the kernels name."""
WAYS = ("expanded", "aclnn", "aclop", "aicpu", "hccl", "cpu")
"""What a line says in the place of types; ir/core/kernels/table.py tells their meaning."""
ITEM = 72
"""Bytes of an item of the GPU's older list, and of that of Ascend's collectives: a name and a vector or a function, in
the memory that malloc gives for it."""


def read(target: str) -> str:
    """The text of the target's list."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "kernels.tsv")
        walker, notes = _compiled(Path(folder))
        environment = dict(os.environ)
        if target != "cpu":
            from tests.devices.running import ENVIRONMENTS

            device, library = PLUGINS[target]
            environment |= ENVIRONMENTS[device]()
            environment["LD_PRELOAD"] += f" {notes}"
            environment["NOTE_MAPS_OF"] = library
        command = [sys.executable, "-m", "tests.devices.kernels.read_kernels", "--walk", target, str(out)]
        subprocess.run([*command, str(walker), str(notes)], cwd=ROOT, env=environment, check=True)
        lines = out.read_text() + "".join(_lines(names.split(), way) for way, names in BY_HAND[target].items())
        if target == "ascend":
            own = {line.partition("\t")[0] for line in lines.splitlines()}
            lines += _lines(sorted(kernels("cpu").names() - own), "cpu")
        return _head(target) + compact(lines)


def _lines(names: Iterable[str], way: str) -> str:
    return "".join(f"{name}\t\t\t{way}\n" for name in names)


def _head(target: str) -> str:
    return (
        f"# The kernels of MindSpore {version('mindspore')}, {PLUGINS[target][1]}. Written by\n"
        "# tests/devices/kernels/read_kernels.py from the lists in the memory of the loaded plug-in; table.py says\n"
        "# how to read it.\n"
    )


def compact(lines: str) -> str:
    """The lines of walk.cc in the form of the lists: one line for all primitives of which the same is said."""
    said: dict[str, dict[str, None]] = {}
    for line in sorted(lines.splitlines(), key=lambda line: line.partition("\t")[0]):
        name, inputs, outputs, flags = line.split("\t")
        said.setdefault(name, {})[_word(inputs, outputs, flags)] = None
    together: dict[str, list[str]] = {}
    for name, words in said.items():
        together.setdefault(" ".join(words), []).append(name)
    return "".join(f"{' '.join(names)}: {words}\n" for words, names in together.items())


def _word(inputs: str, outputs: str, flags: str) -> str:
    if flags in WAYS:
        return flags
    if flags.endswith("unchecked"):
        return "any"
    repeated = "*" if flags == "repeated" else ""
    returned = ",".join(CODES.get(int(code), "?") for code in outputs.split(",") if code)
    return ",".join(_operand(text) for text in inputs.split(",") if text) + f"{repeated}>{returned}"


def _operand(text: str) -> str:
    dtype, _, kind = text.partition(":")
    code = CODES.get(int(dtype), "?")
    return f"#{code}" if kind in NUMBERS else f"({code})" if kind in SEQUENCES else code


def _compiled(folder: Path) -> tuple[Path, Path]:
    found = importlib.util.find_spec("mindspore")
    assert found is not None
    assert found.submodule_search_locations is not None
    headers = Path(found.submodule_search_locations[0], "include")
    places = (
        "mindspore/ccsrc",
        "mindspore/core/include",
        "mindspore/core",
        "mindspore",
        ".",
        "mindspore/ops",
        "mindspore/ops/include",
    )
    places += (
        "mindspore/core/mindrt/include",
        "mindspore/core/mindrt",
        "third_party/robin_hood_hashing",
        "third_party",
    )
    made = []
    for name in ("walk", "note_maps"):
        made.append(folder / f"{name}.so")
        flags = ["-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-fPIC", "-shared", "-w", "-O1"]
        where = [f"-I{headers / place}" for place in places]
        subprocess.run(["g++", *flags, *where, "-o", str(made[-1]), str(HERE / f"{name}.cc"), "-ldl"], check=True)
    return made[0], made[1]


def _walk(target: str, out: str, walker: str, notes: str) -> None:
    """In a process of its own: loads the plug-in by running something, and walks what it has listed."""
    import mindspore
    import numpy as np
    from mindspore import ops

    mindspore.set_device(PLUGINS[target][0])
    one = mindspore.Tensor(np.ones(2, np.float32))
    ops.add(one, one).asnumpy()
    folder = Path(mindspore.__file__).parent / "lib"
    for name in ("core", "common", "hardware_abstract", "ops", "backend_common"):
        common = ctypes.CDLL(str(folder / f"libmindspore_{name}.so"), ctypes.RTLD_GLOBAL)
    walk, path = ctypes.CDLL(walker), out.encode()
    if target == "ascend":
        _walk_ascend(walk, ctypes.CDLL(notes), out, folder / "plugin")
    else:
        assert walk.walk_factory(FACTORIES[target], path) > 0
    if target == "gpu":
        _walk_older(walk, ctypes.CDLL(notes), out)
    registry = ctypes.addressof(ctypes.c_char.in_dll(common, EXPANDED))
    assert walk.walk_expanded(ctypes.c_void_p(registry), path) > 0
    sys.stdout.flush()
    os._exit(0)  # the kernels that were made cannot be taken down without a device


def _walk_older(walk: ctypes.CDLL, notes: ctypes.CDLL, out: str) -> None:
    """The older list: of the big maps with such items, the one whose names the factory does not know."""
    newer = _names(Path(out))
    for place, names in _noted(walk, notes, out, ITEM, 40):
        if not newer & names:
            assert walk.walk_older(ctypes.c_void_p(place), out.encode()) > 0
            return
    raise AssertionError("the GPU's older list of kernels was not found")


def _walk_ascend(walk: ctypes.CDLL, notes: ctypes.CDLL, out: str, plugins: Path) -> None:
    """Which of the ways to a kernel there is for each primitive; types and chips are CANN's to decide."""
    path = out.encode()
    assert walk.walk_factory_names(FACTORIES["ascend"], path, b"aclnn") > 0
    library, get = ADAPTERS
    adapters = ctypes.cast(getattr(ctypes.CDLL(str(plugins / library)), get), ctypes.c_void_p)
    assert walk.walk_adapters(adapters, path, b"aclop") > 0
    with open(out, "a") as lines:
        lines.write(_lines(json.loads((plugins / AICPU).read_text()), "aicpu"))
    for place, names in _noted(walk, notes, out, ITEM, 5):
        if COLLECTIVE in names and walk.walk_names(ctypes.c_void_p(place), path, b"hccl") > 0:
            return
    raise AssertionError("the list of Ascend's kernels for collectives was not found")


def _noted(walk: ctypes.CDLL, notes: ctypes.CDLL, out: str, item: int, least: int) -> Iterator[tuple[int, set[str]]]:
    """The maps that the plug-in filled, with items of so many bytes and at least so many of them: place and names."""
    notes.noted_map.restype = ctypes.c_void_p
    notes.noted_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    place = notes.noted_map(None, item, least)
    while place:
        names = Path(f"{out}.{place}")
        walk.walk_names(ctypes.c_void_p(place), str(names).encode(), b"")
        yield place, _names(names)
        place = notes.noted_map(place, item, least)


def _names(lines: Path) -> set[str]:
    return {line.partition("\t")[0] for line in lines.read_text().splitlines()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--walk"]:
        _walk(*sys.argv[2:6])
    for asked in sys.argv[1:] or PLUGINS:
        (ROOT / "ir" / "core" / "kernels" / f"{asked}.txt").write_text(read(asked), "ascii")
