"""Adapters in files of their own, with the names and the configuration that PEFT gives them: ``lora_A`` and ``lora_B``
of each layer in a ``.safetensors``, and ``adapter_config.json`` beside it.

Source: https://huggingface.co/docs/peft, the format of checkpoints.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import isclose, sqrt
from pathlib import Path
from typing import Any

from ...ir.analysis.effects.effect_list import written_states
from ...ir.core.errors import RuntimeFailure, nearest
from ...ir.core.program import Program
from ...ir.files.atomic import replacing_file
from ...ir.rewrite.evaluation import adapters_of
from .checkpoint import DamagedState, read_state, write_state

PREFIX = "base_model.model."
CONFIGURATION = "adapter_config.json"
SUFFIX = ".safetensors"


def write_adapters(path: str | os.PathLike[str], program: Program, values: Mapping[str, Any]) -> None:
    """Writes the adapters of a program, and what is trained beside them, of the state ``values``."""
    path = Path(path)
    _check_name(path)
    adapters = adapters_of(program)
    own = {name for adapter in adapters.values() for name in (adapter.a, adapter.b)}
    written = {name for graph in program.graphs.values() for name in written_states(graph)}
    beside = [n for n, v in program.state.items() if v.role == "weight" and n in written and n not in own]
    named = {PREFIX + name: values[name] for name in values if name in own or name in beside}
    write_state(path, {}, named, {"format": "pt"})
    with replacing_file(path.with_name(CONFIGURATION)) as file:
        file.write(json.dumps(_configuration(program, beside), indent=2, sort_keys=True).encode() + b"\n")


def _configuration(program: Program, beside: list[str]) -> dict[str, Any]:
    """What PEFT writes of a LoRA, as far as it is known: what is null says nothing."""
    adapters = list(adapters_of(program).values())
    alpha = adapters[0].alpha
    layers = [adapter.a.removesuffix(".lora_A.weight") for adapter in adapters]
    biases = [name for name, v in program.state.items() if v.role == "weight" and name.endswith(".bias")]
    bias = "none"
    for kind, meant in (("all", biases), ("lora_only", [n for n in biases if n.removesuffix(".bias") in layers])):
        if bias == "none" and meant and set(meant) <= set(beside):
            bias, beside = kind, [name for name in beside if name not in meant]
    modules = list(dict.fromkeys(name.rpartition(".")[0] or name for name in beside))
    return {
        "peft_type": "LORA",
        "r": adapters[0].rank,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": 0.0,
        "target_modules": layers,
        "modules_to_save": modules or None,
        "bias": bias,
        "fan_in_fan_out": all(adapter.inputs_first for adapter in adapters),
        "inference_mode": True,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
        "rank_pattern": {},
        "alpha_pattern": {},
        "layers_pattern": None,
        "layers_to_transform": None,
        "auto_mapping": None,
        "base_model_name_or_path": None,
        "revision": None,
        "task_type": None,
    }


def read_adapters(path: str | os.PathLike[str], program: Program) -> dict[str, Any]:
    """The adapters of ``program``, and what was trained beside them, by the names of its state. RuntimeFailure for
    those of another program; where a configuration stands beside the file, also for adapters that are multiplied by
    something else."""
    path = Path(path)
    _check_name(path)
    adapters = adapters_of(program)
    own = [name for adapter in adapters.values() for name in (adapter.a, adapter.b)]
    weights = [name for name, variable in program.state.items() if variable.role == "weight"]
    given: dict[str, Any] = {}
    for name, array in read_state(path).items():
        ours = name.removeprefix(PREFIX)
        if ours == name or ours not in weights:
            raise RuntimeFailure(
                f"{path} holds '{name}', which is no adapter of the program{nearest(ours, own)}: the program must be "
                "compiled with lora for the layers, and with the rank, of the file."
            )
        given[ours] = array
    lacking = next((name for name in own if name not in given), None)
    if lacking is not None:
        raise RuntimeFailure(f"{path} lacks '{PREFIX}{lacking}': it holds the adapters of another program.")
    _check_scale(path.with_name(CONFIGURATION), next(iter(adapters.values())).scale)
    return given


def _check_scale(path: Path, ours: float) -> None:
    if not path.is_file():
        return
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        rank, alpha = int(read["r"]), float(read["lora_alpha"])
        scale = alpha / (sqrt(rank) if read.get("use_rslora") else rank)
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError, RecursionError) as error:
        raise DamagedState(f"{path}: is no configuration of adapters: {error!r}.") from error
    if read.get("alpha_pattern") or not isclose(scale, ours):
        raise RuntimeFailure(
            f"{path}: its adapters are multiplied by {scale:g}, and those of the program by {ours:g}: the program must "
            f"be compiled with lora{{rank={rank},alpha={scale * rank:g}}}."
        )


def _check_name(path: Path) -> None:
    if path.suffix != SUFFIX:
        raise RuntimeFailure(f"{path}: adapters stand in {SUFFIX} files; end the name with that.")
