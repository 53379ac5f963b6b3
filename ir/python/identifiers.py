"""Identifiers for generated source. Names of a file are hints at most: what comes out here is plain ASCII, unique, and
neither a keyword, a builtin, nor an attribute that MindSpore's Cell uses itself."""

from __future__ import annotations

import builtins
import keyword
import re

_CELL = frozenset(
    [
        "IGNORE_LIST",
        "T_destination",
        "add_flags",
        "add_flags_recursive",
        "apply",
        "arguments_key",
        "bprop",
        "bprop_debug",
        "buffers",
        "cast_inputs",
        "cell_init_args",
        "cell_type",
        "cells",
        "cells_and_names",
        "check_names",
        "check_names_and_refresh_name",
        "cls_name",
        "compile",
        "compile_and_run",
        "compile_cache",
        "compile_phase",
        "compiled",
        "construct",
        "create_time",
        "enable_backward_hook",
        "exist_names",
        "exist_objs",
        "extend_repr",
        "generate_scope",
        "get_buffer",
        "get_extra_state",
        "get_flags",
        "get_func_graph_proto",
        "get_inputs",
        "get_mixed_precision_type",
        "get_parameters",
        "get_scope",
        "get_sub_cell",
        "global_cells",
        "grad_ops_label",
        "has_bprop",
        "init_parameters_data",
        "insert_child_to_cell",
        "insert_param_to_cell",
        "is_top_cell",
        "jit_config_dict",
        "load_state_dict",
        "mixed_precision_type",
        "name",
        "name_cells",
        "named_buffers",
        "offload",
        "parallel_parameter_merge_net_dict",
        "parallel_parameter_name_list",
        "param_prefix",
        "parameter_layout_dict",
        "parameters_and_names",
        "parameters_broadcast_dict",
        "parameters_dict",
        "phase",
        "phase_cache",
        "pipeline_segment",
        "pipeline_stage",
        "recompute",
        "register_backward_hook",
        "register_backward_pre_hook",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_load_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_parameter_forward_hook",
        "register_saved_tensors_hooks",
        "register_state_dict_post_hook",
        "register_state_dict_pre_hook",
        "remove_redundant_parameters",
        "requires_grad",
        "run_construct",
        "set_boost",
        "set_broadcast_flag",
        "set_comm_fusion",
        "set_data_parallel",
        "set_extra_state",
        "set_grad",
        "set_inputs",
        "set_jit_config",
        "set_mixed_precision_type",
        "set_train",
        "shard",
        "state_dict",
        "to",
        "to_empty",
        "to_float",
        "total_instance_count",
        "trainable_params",
        "training",
        "untrainable_params",
        "update_cell_prefix",
        "update_cell_type",
        "update_parameters_name",
    ]
)
"""Attributes of ``mindspore.nn.Cell`` (2.10) without a leading underscore."""

_SOURCE = frozenset(
    [
        "self",
        "state",
        "prefix",
        "primitive",
        "function",
        "tensor",
        "State",
        "Network",
        "load",
        "np",
        "ms",
        "nn",
        "ops",
        "json",
        "inspect",
        "Path",
        "Tensor",
        "Parameter",
        "Cell",
        "Primitive",
        "safe_open",
        "auto_generate",
        "operations",
        "INF",
        "NAN",
    ]
)
"""Names that the source itself uses."""

RESERVED = frozenset((*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_CELL, *_SOURCE))
_LONGEST = 40


def is_plain(name: str) -> bool:
    """Whether ``name`` can stand as a keyword argument as it is."""
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)) and "__" not in name and not keyword.iskeyword(name)


def snake(hint: str) -> str:
    """``BatchNorm2d`` as ``batch_norm2d``; letters, digits and single underscores only, beginning with a letter."""
    words = re.sub(r"(?<=[A-Za-z])(?=[A-Z][a-z])", "_", re.sub(r"[^A-Za-z0-9]+", "_", hint))
    return _trimmed(words.lower()) or "value"


def camel(hint: str) -> str:
    """``basic_block`` as ``BasicBlock``."""
    parts = [p for p in re.split(r"[^A-Za-z0-9]+", hint) if p]
    return _trimmed("".join(p[0].upper() + p[1:] for p in parts)) or "Part"


def _trimmed(name: str) -> str:
    return re.sub(r"__+", "_", name).lstrip("_0123456789")[:_LONGEST].rstrip("_")


class Identifiers:
    """Gives out names, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._serial: dict[str, int] = {}

    def claim(self, name: str) -> str:
        """``name``, an identifier, or the first free of ``name_2``, ``name_3``, …"""
        unique = name
        while unique in self._taken or unique in RESERVED:
            n = self._serial[name] = self._serial.get(name, 1) + 1
            unique = f"{name}_{n}"
        self._taken.add(unique)
        return unique
