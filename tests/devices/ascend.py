"""MindSpore's Ascend backend without a chip: stubs of CANN, behind MindSpore's own simulation of a device.

In simulation (`MS_SIMULATION_LEVEL=1`) MindSpore compiles, selects kernels, plans memory and goes through each step
without launching anything. It only wants CANN's libraries to be there.
"""

from __future__ import annotations

import re
from pathlib import Path

from .build import SOURCES, built, library, plugins
from .symbols import asked, given, mentioned

PLUGIN = "libmindspore_ascend.so.2"
OF_CANN = r"acl[a-z]*[A-Z]\w*|(rt|hal)[A-Z]\w*|[Hh]ccl\w+|[Hh]com\w+|_ZNK?(2ge|3atb)\w+"
"""The names that are CANN's, in C and in C++."""
COMPUTE = "libascendcl.so"
"""Has all of CANN's names; its other libraries are empty and lead to it."""
EMPTY = (
    "libascend_hal.so",
    "libatb.so",
    "libc_sec.so",
    "libge_runner.so",
    "libgraph.so",
    "libhccl.so",
    "libmsprofiler.so",
)
EMPTY += ("libnnopbase.so", "libplatform.so", "libruntime.so")
OPERATORS = "libopapi.so"
KERNEL = r"aclnn\w+"
OBJECTS = ("Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList")
"""What aclnn kernels take, as aclCreate… and aclDestroy… make and end it."""
AROUND_KERNELS = (
    *("aclnnInit", "aclnnFinalize", "aclDestroyAclOpExecutor", "aclSetAclOpExecutorRepeatable", "aclSetTensorAddr"),
    *("aclSetDynamicTensorAddr", "aclSetInputTensorAddr", "aclSetOutputTensorAddr", "aclSetDynamicInputTensorAddr"),
    *("aclSetDynamicOutputTensorAddr", "InitHugeMemThreadLocal", "UnInitHugeMemThreadLocal", "ReleaseHugeMem"),
    *("InitPTACacheThreadLocal", "SetPTAHashKey", "CanUsePTACache", "PTAGetExecCache", "InitAclOpHcclContext"),
)
OLD_STRINGS = "-D_GLIBCXX_USE_CXX11_ABI=0"
"""The form of std::string that MindSpore and CANN are compiled with."""
NEED_CANN = re.compile(
    r"_ZNK?9mindspore6device6ascend(12AclConverter|9AclRunner)\d+"
    r"(ConvertToAcl\w+|ConvertInputToAclAttr|ConvertAttrToAclInput|ConvertValueDependToHostInput|ConvertMsIdxToGeIdx"
    r"|SetRunnerSpecialInfo|ProcessRunnerSpecialInfo|IsNeedSkipExecute|Set\w+Mode|Run|Reset)E.*"
)
"""Methods of MindSpore that hand an operator to CANN's graph engine. Stubs cannot answer, so these do nothing here."""


def libraries() -> Path:
    """The folder of the stubs, built if need be; raises NotPossible."""
    return built("ascend", _make, plugins() / PLUGIN)


def environment() -> dict[str, str]:
    """What a process needs to use them."""
    folder = libraries()
    home = folder / "cann"
    return {
        "LD_LIBRARY_PATH": str(home / "lib64"),
        "LD_PRELOAD": str(folder / "no_graph_engine.so"),
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_TOOLKIT_HOME": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "PYTHONPATH": str(folder / "python"),
        "MS_SIMULATION_LEVEL": "1",
        "MS_DEV_RUNTIME_CONF": "switch_inline:False",  # in simulation MindSpore cannot inline branches, its own neither
    }


def _make(folder: Path) -> None:
    ours = _of_ascend()
    wanted = {symbol.name for path in ours for symbol in asked(path)}
    # What they look up when they run stands in their bytes.
    wanted |= set[str]().union(*(mentioned(path, OF_CANN) for path in ours))
    names = {name for name in wanted if re.fullmatch(OF_CANN, name)} - {s.name for path in ours for s in given(path)}
    kernels = {name for name in names if re.fullmatch(KERNEL, name)}
    place = folder / "cann" / "lib64"
    place.mkdir(parents=True)
    library(place / COMPUTE, [SOURCES / "ascend.cc"], names - kernels, options=[OLD_STRINGS])
    for name in EMPTY:
        library(place / name, [], options=["-Wl,--no-as-needed", str(place / COMPUTE)])
    objects = {f"acl{verb}{what}" for verb in ("Create", "Destroy") for what in OBJECTS}
    library(place / OPERATORS, [], {*kernels, *(f"{k}GetWorkspaceSize" for k in kernels), *objects, *AROUND_KERNELS})
    methods = {symbol.name for path in ours for symbol in given(path)}
    stubs = filter(NEED_CANN.fullmatch, methods)
    library(folder / "no_graph_engine.so", [SOURCES / "no_graph_engine.cc"], stubs, options=[OLD_STRINGS])
    package = folder / "python" / "hccl"  # CANN's package, without which MindSpore starts no communication
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "sys_version.py").write_text('__sys_version__ = ""\n')


def _of_ascend() -> list[Path]:
    """The libraries of MindSpore's package that are for Ascend."""
    beside = [*plugins().glob("libmindspore*ascend.so*"), plugins().parent / "libmindspore_ge_backend.so"]
    return [*beside, *(plugins() / "ascend").rglob("lib*.so")]
