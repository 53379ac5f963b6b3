"""The evaluation network of a program, as a program of its own that shares the state."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...analysis.training.network import network_parts
from ...core.data import from_numpy, rounded
from ...core.errors import PassError, nearest
from ...core.graph import Graph, Node, Value, tensor_type
from ...core.interface import interface_of
from ...core.names import LOSS
from ...core.program import Entry, Program, Schedule
from ...core.types import DType
from ...core.wording import counted
from ..batch_size.resize import batch_inputs, plan_resize
from ..settle_results import settle_results
from .inference import draws, rest
from .outputs import find_outputs, is_training, loss_of, results_of
from .pruning import prune

GRAPH = "network"


class LabelWarning(UserWarning):
    """Nothing says whether an input belongs to the network or to its loss."""


@dataclass(frozen=True)
class Evaluation:
    """``program`` has one graph, ``network``, which returns ``outputs`` and writes nothing, and of the state what that
    graph reads; the data are those of the training program.

    ``left_out``: inputs of the training graph that the network does not take. ``ends_at``: the nodes of the training
    graph that it returns. ``is_whole``: there was no backward part, so nothing but effects was left out. ``drawing``:
    the primitives in it that still draw at random. ``label``: the input that alone is the label, where that is known.
    ``unsure``: inputs that were left out as labels, and may as well belong to the network. ``batch``: how many samples
    it takes, as :meth:`resized` was told; ``per_sample``: then also the inputs and outputs whose first axis is that
    number.
    """

    program: Program
    left_out: tuple[str, ...]
    ends_at: tuple[str, ...]
    is_whole: bool
    drawing: tuple[str, ...]
    label: str | None = None
    unsure: tuple[str, ...] = ()
    batch: str = ""
    per_sample: frozenset[str] = frozenset()

    @property
    def graph(self) -> Graph:
        return self.program.graphs[GRAPH]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.graph.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.graph.outputs

    def __str__(self) -> str:
        what = "the whole graph" if self.is_whole else f"the network, as far as {', '.join(self.ends_at)}"
        text = (
            f"{what}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}, "
            f"{counted(len(self.program.state), 'weight')}"
        )
        text += f"; {self.batch}" if self.batch else ""
        text += f"; without {', '.join(self.left_out)}" if self.left_out else ""
        text += "" if self.is_whole else "; without loss, backward part and optimizer"
        text += f"; unsure whether {' and '.join(self.unsure)} should be left out" if self.unsure else ""
        return text + (f"; still draws at random: {', '.join(self.drawing)}" if self.drawing else "")

    def resized(self, size: int | None, inputs: Collection[str] = (), runs: bool = True) -> Evaluation:
        """The network for another number of samples, or for any (None). ``inputs``: which hold the batch; without them
        all whose first axis is as long as that of the first. ``runs``: MindSpore is to run it
        (:class:`..batch.rewrite.Rewrite`). PassError that lists the nodes that do not allow it."""
        if size is None and self.graph.inputs and tensor_type(self.graph.inputs[0]).shape[:1] == (-1,):
            return replace(self, batch="any number of samples")
        old, batched = batch_inputs(self.graph, 0, inputs)
        if old == size:
            return replace(self, batch=counted(size, "sample"))
        graph, twin = self.graph.clone()
        rewrite = plan_resize(graph, old, batched, size, runs=runs)
        rewrite.apply()
        values = {**{v.name: v for v in self.graph.inputs}, **results_of(self.graph)}
        return replace(
            self,
            program=replace(self.program, graphs={GRAPH: graph}),
            batch="any number of samples" if size is None else counted(size, "sample"),
            per_sample=frozenset(n for n, value in values.items() if rewrite.per_sample(twin[value])),
        )

    def with_values(self, values: Mapping[str, Any], origin: str) -> Evaluation:
        """The network with other weights: arrays by name, float32 for bfloat16; names that it lacks are skipped.
        PassError where one is missing or of another shape or type; ``origin`` says there where they come from."""
        state = {}
        for name, variable in self.program.state.items():
            array = values.get(name)
            half = variable.dtype is DType.BFLOAT16
            wanted = "float32" if half else variable.dtype.value
            if array is None or array.shape != variable.shape or array.dtype != wanted:
                held = "lacks it" if array is None else f"has {array.dtype}{list(array.shape)} for it"
                raise PassError(f"state '{name}' is {variable.type}, and {origin} {held}")
            type_, data = from_numpy(array)
            state[name] = replace(variable, data=rounded(type_, data, DType.BFLOAT16) if half else data)
        return replace(self, program=replace(self.program, state=state))


def evaluation(program: Program, result: str | None = None) -> Evaluation:
    """The network of ``program`` as it predicts: the forward part up to the values that the loss is taken of
    (:func:`.outputs.network_outputs`), or up to the node called ``result``; the whole of a graph that has no backward
    part. What that means for BatchNorm, Dropout and state that the forward part writes: :func:`.inference.rest`.

    Outputs have the names that the model had which the program was made of, if it says them (``ir/core/interface.py``).
    ``result`` may also name one of the results that the graph returns.

    The counterpart of ``network_auto_process_eval`` of ``mindspore.boost``. PassError where there is no such network.
    A :class:`LabelWarning` names inputs of which nothing says whether they belong to the network.
    """
    ends = _found(program, result)
    source, found = ends.graph, ends.values
    if ends.unsure:
        warnings.warn(_doubt(ends.unsure), LabelWarning, stacklevel=1)  # one place: each of them is shown once
    ends_at = tuple(_place(value) for value in found.values())
    graph, twin = source.clone(GRAPH)
    # A tuple that holds the outputs keeps them in sight while nodes behind them are replaced.
    kept = graph.create("MakeTuple", [twin[value] for value in found.values()])
    rest(graph, kept)
    prune(graph)
    _drop_unused(graph, ends.is_whole)
    graph.outputs = tuple(found)
    taken = set(graph.inputs)
    made = Program(
        graphs={GRAPH: graph},
        state={name: program.state[name] for name in graph.states},
        schedule=Schedule((Entry(GRAPH),)),
        name=program.name,
        target=program.target,
        metadata=dict(program.metadata),
        source=dict(program.source),
    )
    return Evaluation(
        program=made,
        left_out=tuple(v.name for v in source.inputs if twin[v] not in taken),
        ends_at=ends_at,
        is_whole=ends.is_whole,
        drawing=tuple(dict.fromkeys(node.op.name for node in draws(graph))),
        label=ends.label,
        unsure=ends.unsure,
    )


def loss_node(program: Program) -> str | None:
    """The name of the loss's node, for ``evaluation(program, name)``; None for a network alone, or without a loss."""
    graph = _consumer(program)
    if graph.outputs and LOSS not in graph.outputs:
        return None
    loss = loss_of(graph) if is_training(graph) else None
    return loss.name if isinstance(loss, Node) else None


def _consumer(program: Program) -> Graph:
    for entry in program.schedule.cycle:
        graph = program.graphs[entry.graph]
        if not graph.inputs:
            continue
        if is_training(graph):
            # A loss may come out of a branch that updates the weights.
            graph = graph.clone()[0]
            settle_results(graph, network_parts(graph))
        return graph
    raise PassError("no graph of the program takes an input: there is no network to evaluate")


@dataclass(frozen=True)
class _Ends:
    """The graph that holds a network, the values that it returns, and whether that is all of the graph."""

    graph: Graph
    values: Mapping[str, Value]
    is_whole: bool = False
    label: str | None = None
    unsure: tuple[str, ...] = ()


def _found(program: Program, result: str | None) -> _Ends:
    graph = _consumer(program)
    if result is not None:
        nodes: dict[str, Value] = {**results_of(graph), **{n.name: n for n in graph}}
        if result not in nodes:
            raise PassError(
                f"graph '{graph.name}' has no node '{result}'{nearest(result, list(nodes))}; "
                "boost-inspect --format text shows their names"
            )
        return _Ends(graph, {result: nodes[result]})
    if not is_training(graph):
        return _Ends(graph, results_of(graph), is_whole=True)
    found = find_outputs(program, graph)
    outputs, names = found.values, interface_of(program).outputs
    if LOSS not in outputs and len(names) == len(outputs):
        outputs = dict(zip(names, outputs.values(), strict=True))
    return _Ends(graph, outputs, label=found.label, unsure=found.unsure)


def _doubt(names: Sequence[str]) -> str:
    which = " and ".join(f"'{name}'" for name in names)
    one = len(names) == 1
    return (
        f"the input{'' if one else 's'} {which} {'reaches' if one else 'reach'} no layer, and nothing says whether the "
        f"network or its loss takes {'it' if one else 'them'}: {'it is' if one else 'they are'} left out, as "
        f"{'a label' if one else 'labels'}. If the network takes {'it' if one else 'them'}, say where it ends, "
        "result='NODE' (boost-inspect --forward --result NODE), or capture its parts, bc.capture(network, loss, "
        "optimizer, *inputs)."
    )


def _place(value: Value) -> str:
    scope = value.scope if isinstance(value, Node) else ""
    return f"%{value.name} ({scope})" if scope else f"%{value.name}"


def _drop_unused(graph: Graph, is_whole: bool) -> None:
    """States that nothing refers to any more; of a training graph the inputs too."""
    for body in graph.all_graphs():
        body.forget_unused_states()
    if not is_whole:
        graph.inputs[:] = [v for v in graph.inputs if v.uses]
