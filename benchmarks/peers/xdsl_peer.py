"""xDSL on a graph: ``python xdsl_peer.py GRAPH SCRATCH``. Loading and saving are those of its text form."""

from __future__ import annotations

from io import StringIO

from graph import PeerGraph, Step, run  # type: ignore[import-not-found,unused-ignore]
from xdsl.context import Context  # type: ignore[import-not-found,unused-ignore]
from xdsl.dialects.builtin import (  # type: ignore[import-not-found,unused-ignore]
    Builtin,
    ModuleOp,
    StringAttr,
    TensorType,
    f32,
)
from xdsl.ir import Dialect, SSAValue  # type: ignore[import-not-found,unused-ignore]
from xdsl.irdl import (  # type: ignore[import-not-found,unused-ignore]
    IRDLOperation,
    attr_def,
    irdl_op_definition,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser  # type: ignore[import-not-found,unused-ignore]
from xdsl.printer import Printer  # type: ignore[import-not-found,unused-ignore]
from xdsl.traits import Pure  # type: ignore[import-not-found,unused-ignore]
from xdsl.transforms.common_subexpression_elimination import cse  # type: ignore[import-not-found,unused-ignore]
from xdsl.transforms.dead_code_elimination import dce  # type: ignore[import-not-found,unused-ignore]


@irdl_op_definition
class Apply(IRDLOperation):  # type: ignore[misc,unused-ignore]
    """A pure operation: what it is called stands in an attribute."""

    name = "training.apply"
    kind = attr_def(StringAttr)
    scope = attr_def(StringAttr)
    arguments = var_operand_def()
    value = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class Source(IRDLOperation):  # type: ignore[misc,unused-ignore]
    """A value from outside."""

    name = "training.source"
    value = result_def()


@irdl_op_definition
class Result(IRDLOperation):  # type: ignore[misc,unused-ignore]
    """What the graph returns."""

    name = "training.result"
    arguments = var_operand_def()


TRAINING = Dialect("training", [Apply, Source, Result], [])


def build(graph: PeerGraph) -> ModuleOp:
    type_ = TensorType(f32, [8, 8])
    operations: list[IRDLOperation] = [Source.build(result_types=[type_]) for _ in range(graph.inputs)]
    values: list[SSAValue] = [operation.results[0] for operation in operations]
    for op, scope, operands in graph.nodes:
        made = Apply.build(
            operands=[[values[o] for o in operands]],
            attributes={"kind": StringAttr(op), "scope": StringAttr(scope)},
            result_types=[type_],
        )
        operations.append(made)
        values.append(made.results[0])
    operations.append(Result.build(operands=[[values[-1]]]))
    return ModuleOp(operations)


def parse(text: str) -> ModuleOp:
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(TRAINING)
    return Parser(context, text).parse_module()


def printed(module: ModuleOp) -> str:
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue()


def steps(graph: PeerGraph, scratch: str) -> list[Step]:
    text = printed(build(graph))
    module = parse(text)
    return [
        ("load", lambda: text, parse),
        ("copy", lambda: module, lambda m: m.clone()),
        ("verify", lambda: module, lambda m: m.verify()),
        ("dead-code-elimination", lambda: module.clone(), dce),
        ("common-subexpression-elimination", lambda: module.clone(), cse),
        ("save", lambda: module, printed),
    ]


if __name__ == "__main__":
    run("xdsl", steps)
