"""A hundred faults, a few at each place between bc.enable and an updated weight. Each says by which words its error is
told."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from itertools import cycle
from typing import Any

import pytest
from boost_compile.ir.core.errors import Error
from boost_compile.ir.verify import verifier
from boost_compile.passes.framework import manager
from boost_compile.passes.gradient_accumulation.gradient_accumulation import GradientAccumulation
from boost_compile.runtime.engine import engine
from boost_compile.runtime.in_compiler import build, door, enabled, hook, step, update, watch
from mindspore import graph

KINDS = (ZeroDivisionError, MemoryError, OSError, Error, RuntimeError, IndexError)


@dataclass(frozen=True)
class Fault:
    """``place`` has ``instead`` by the name ``name``; the error says ``says``."""

    part: str
    place: Any
    name: str
    instead: Any
    says: str

    def inject(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(self.place, self.name, self.instead)


def raises(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


RAISE: dict[str, list[tuple[Any, str]]] = {
    "hook": [
        (hook, "is_listening"), (hook, "active"), (hook, "current"), (hook, "who_asks"), (hook, "step_of"),
        (hook, "make_state"), (hook, "TakenStep"), (watch.Compilation, "take"), (enabled, "asks_for"),
        (enabled, "trained"), (engine, "new_parameter"),
    ],
    "reading": [
        (hook, "read_step"), (step, "read_bytes"), (step, "order_as_run"), (step, "LiveData"), (step, "anatomy"),
    ],
    "compiling": [
        (hook, "rewrite_step"), (step, "assign_roles"), (step, "_place"), (step, "_refuse_other_inputs"),
        (step, "lower"), (step, "_refuse_other_state"), (step, "_keep_results"), (GradientAccumulation, "run"),
        (manager, "compile_program"),
        (manager, "canonical_order"), (verifier, "verify"), (step, "Context"), (step, "accumulating_graph"),
    ],
    "writing": [(step, "stateless_bytes"), (step.Rewritten, "to_bytes")],
    "binding": [
        (watch.Compilation, "finish"), (hook, "Update"), (update, "LiveCell"), (update, "Engine"),
        (update, "Schedule"),
    ],
    "updating": [(watch, "finish"), (update.Update, "is_due"), (update.Update, "run")],
    "building": [
        (door, "bridge"), (door, "prepare_environment"), (door, "watch"), (build, "mindspore_version"),
        (build, "cache_folder"), (build, "_key"),
    ],
}  # fmt: skip
"""What fails when it is called, by the part of the way in which it stands."""


def failing() -> Iterator[Fault]:
    kinds = cycle(KINDS)
    for part, places in RAISE.items():
        for place, name in places:
            says = f"injected into {name}"
            yield Fault(part, place, name, raises(next(kinds)(says)), says)


def changed(change: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, with what it returns changed."""
    genuine = hook.rewrite

    def instead(data: bytes, parameters: dict[str, Any]) -> Any:
        made = genuine(data, parameters)
        return None if made is None else change(*made)

    return instead


def loading() -> Iterator[Fault]:
    """Bytes that are no whole graph."""
    for parts in range(1, 13):
        made = changed(lambda d, s, n, parts=parts: (d[: len(d) * parts // 13], s, n))
        yield Fault("loading", hook, "rewrite", made, "")
    for data in (b"", b"\0", b"nonsense", b"\xff" * 1000):
        yield Fault("loading", hook, "rewrite", changed(lambda _, s, n, data=data: (data, s, n)), "")


def binding() -> Iterator[Fault]:
    """States and Parameters that do not fit the graph."""
    changes: list[tuple[Callable[..., Any], str]] = [
        (lambda d, s, n: (d, s[1:], n), "takes"),
        (lambda d, s, n: (d, s[:-1], n), "takes"),
        (lambda d, s, n: (d, [*s, s[0]], n), "takes"),
        (lambda d, s, n: (d, [], n), "takes"),
        (lambda d, s, n: (d, ["?", *s[1:]], n), "'?'"),
        (lambda d, s, n: (d, [*s[:-1], ""], n), "''"),
        (lambda d, s, n: (d, [3, *s[1:]], n), ""),
        (lambda d, s, n: (d, None, n), ""),
        (lambda d, s, n: (d, s, None), ""),
        (lambda d, s, n: (d, s, {}), "nothing holds"),
        (lambda d, s, n: (d, s), ""),
        (lambda d, s, n: (d,), ""),
        (lambda d, s, n: (), ""),
        (lambda d, s, n: 3, ""),
        (lambda d, s, n: "graph", ""),
        (lambda d, s, n: (d, s[::-1], n), ""),
    ]
    changes += [
        (lambda d, s, n, value=value: (d, s, dict.fromkeys(n, value)), "")
        for value in (3, None, "w", 0.5, [], object())
    ]
    changes += [
        (lambda d, s, n, at=at: (d, s, {k: v for i, (k, v) in enumerate(n.items()) if i != at}), "") for at in range(2)
    ]
    for change, says in changes:
        yield Fault("binding", hook, "rewrite", changed(change), says)


def building() -> Iterator[Fault]:
    """A machine that lacks what the bridge needs, or a MindSpore that does."""
    for version in ("2.8.0", "2.7.1", "2.0.0", "1.10.1"):
        yield Fault("version", build.metadata, "version", lambda _, v=version: v, f"MindSpore {version} hands no graph")
    missing = metadata.PackageNotFoundError("mindspore")
    yield Fault("version", build.metadata, "version", raises(missing), "MindSpore is not installed")
    yield Fault("compiler", build.shutil, "which", lambda _: None, "apt install g++")
    nowhere = {"include": "/nowhere"}
    yield Fault("compiler", build.sysconfig, "get_paths", lambda: nowhere, "apt install python3-dev")
    for code, said in ((1, "note\nbridge.cc:1: error: no such thing\n"), (1, ""), (-9, "killed\n"), (0, "")):
        done = subprocess.CompletedProcess([], code, "", said)
        yield Fault("compiler", build.subprocess, "run", lambda *_, done=done, **__: done, "could not be built")
    for number in (errno.EACCES, errno.ENOSPC, errno.EROFS):
        error = OSError(number, "injected")
        yield Fault("compiler", build.subprocess, "run", raises(error), "injected")
    yield Fault("registering", graph, "register_custom_pass", lambda *_: False, "does not load the bridge")
    yield Fault("registering", graph, "register_custom_pass", raises(RuntimeError("injected")), "injected")


FAULTS = (*failing(), *loading(), *binding(), *building())
