"""The table of linear operands against MindSpore's kernels: with the operands of one alternative multiplied by 1024 and
the others as they were, every element of every result is 1024 times what it was, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.analysis.derivative.components import leaves
from boost_compile.ir.analysis.derivative.linear_operands import FILLS, HIDDEN, SHAPE_ONLY, ZEROS, linear_in
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.primitives import linear
from boost_compile.ir.text import parse_graph, parse_program

import boost_compile as bc
from tests.forward import Results

SCALE = np.float32(1024.0)

PRIMITIVES = (Path(__file__).parent / "linear_primitives.txt").read_text()
"""Each with operands: constants, and types that stand for inputs; then attributes, the result's type and its kind."""

NOT_RUN = """
AccumulateNV2 AdaptiveAvgPool2DGradExt AdaptiveAvgPool3DGradExt AddLayerNormGrad Addmm Addmv AllGather AllReduce
AlltoAll AsStrided AvgPool2DGrad AvgPool3DGradExt AvgPoolGradGe AvgPoolGradV1 AvgPoolGradVm BNTrainingUpdateGrad
BasicLSTMCellCStateGrad BasicLSTMCellInputGrad BasicLSTMCellWeightGrad BatchNormElemtGrad BatchNormGradExt
BatchNormReduceGrad BatchToSpaceNDV2 Broadcast ChannelShuffle CholeskyGrad Chunk ChunkView Clone Col2ImExt Col2ImGrad
CollectiveGather CollectiveScatter Conj Conv2DTranspose Conv3DBackpropFilter Conv3DTranspose ConvolutionGrad
ConvolutionStrGrad Copy CrossEntropyLossGrad CumsumExt DCT DeformableOffsetsGrad DepthwiseConv2dNative
DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput DiagExt DiagonalView Dilation2DBackpropFilter
Dilation2DBackpropInput Dot DropoutDoMask DropoutDoMaskExt DropoutGradExt DynamicGRUV2Grad DynamicRNNGrad EinsumGrad
EluGradExt EmbeddingDenseBackward EmbeddingLookupCommGrad Expand FFT FFT2 FFTN FFTWithSize FlashAttentionScoreGrad
FractionalAvgPoolGrad FractionalMaxPool3DGradWithFixedKsize FractionalMaxPoolGrad FractionalMaxPoolGradWithFixedKsize
GRUV2Grad GeluGradExt GmmBackward GmmBackwardFusion GmmV2Backward GmmV2BackwardFusion HardtanhGrad IDCT IFFT IFFT2
IFFTN IRFFT IRFFT2 IRFFTN Im2ColExt Imag Index IndexAddExt IndexFillScalar IndexFillTensor IndexPut IndexSelect
InplaceAddsExt InplaceDivs InplaceIndexAddExt InplaceIndexPut InplaceMaskedFillScalar InplaceScatterAdd
InplaceScatterValue InplaceSubExt InplaceSubScalar InstanceNormGrad InstanceNormV2Grad KLDivGrad L1LossBackwardExt
LSTMGrad LayerNormGradExt LayerNormGradV3 LeakyReLUGradExt LerpScalar LightningIndexerGrad LogSigmoidGrad LstsqV2Grad
MSELossGradExt MaxPool3DGradGrad MaxPoolGradGradWithArgmax MaxPoolGradV1 MaxPoolGradWithIndices MaxPoolGradWithMask
MaxUnpool3DGrad MaximumGradGrad MinimumGradGrad MishGradExt Mm MoeTokenPermuteGrad MoeTokenUnpermuteGrad
MultiScaleDeformableAttnGrad MultilabelMarginLossGrad Mv NLLLoss2dGrad Narrow NarrowView NeighborExchange
NeighborExchangeV2 NeighborExchangeV2Grad NsaCompressGrad NsaSelectAttentionGrad Outer ParallelResizeBilinearGrad
PsROIPoolingGrad RFFT RFFT2 RFFTN Real ReduceScatter ReflectionPad1D ReflectionPad2D ReflectionPad2DGrad
ReflectionPad3D ReflectionPad3DGrad ReluGradV2 Repeat RepeatInterleaveGrad RepeatInterleaveInt RepeatInterleaveTensor
ReplicationPad1D ReplicationPad1DGrad ReplicationPad2D ReplicationPad2DGrad ReplicationPad3D ReplicationPad3DGrad
ResizeV2Grad RmsNormGrad Roll RotaryPositionEmbedding RotaryPositionEmbeddingGrad ScaleAndTranslateGrad ScatterAddExt
SegmentMean SegmentSum SelectView SeluGrad SliceExt SliceExtView SoftMarginLossGrad SoftmaxGrad SoftplusGradExt
SparseAddGrad SparseFlashAttentionGrad SparseSegmentSumGrad SparseSliceGrad SpeedFusionAttentionGrad SplitTensor
SplitTensorView SplitV SplitWithSizeView StackExt SwigluGrad SyncBatchNormGrad Take ThresholdGrad TraceExt TrilExt
UnstackExtView UpsampleBicubic2DGrad UpsampleBilinear2DGrad UpsampleLinear1DGrad View WKVGrad
"""
"""No CPU kernel in MindSpore 2.10, or none that runs well alone: these entries rest on the definitions."""

TYPE = re.compile(r"\b(float32|int32|int64|bool)\[([\d,]*)\](?!<)")


@dataclass
class Call:
    """One primitive of :data:`PRIMITIVES` as lines of a graph. ``at``: the numbers of the inputs of each operand."""

    name: str
    lines: list[str]
    inputs: list[str]
    at: list[list[int]]
    parameters: list[str] = field(default_factory=list)


def operands_of(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c in "([<{") - (c in ")]>}")
        if c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def call(number: int, text: str) -> Call:
    """``text`` as statements that define ``%r<number>``, with inputs ``%x<number>_<i>``."""
    name = text[: text.index("(")]
    depth = 0
    for end in range(len(name), len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            break
    made = Call(name, [], [], [])
    arguments = []
    for i, operand in enumerate(operands_of(text[len(name) + 1 : end])):
        types = [m.group(0) for m in TYPE.finditer(operand)]
        first = len(made.inputs)
        made.inputs += types
        made.at.append(list(range(first, len(made.inputs))))
        names = [f"%x{number}_{k}" for k in made.at[-1]]
        if types and operand.startswith("("):
            made.lines.append(f"%t{number}_{i} = MakeTuple({', '.join(names)})")
            arguments.append(f"%t{number}_{i}")
        else:
            arguments.append(names[0] if names else operand)
    made.parameters = [f"%x{number}_{k}: {t}" for k, t in enumerate(made.inputs)]
    made.lines.append(f"%r{number} = {name}({', '.join(arguments)}){text[end + 1 :]}")
    return made


def program(calls: list[Call]) -> bc.Program:
    """All calls in one graph, whose results are the tensors of floats among theirs."""
    lines = [line for c in calls for line in c.lines]
    results = []
    for c in calls:
        graph = parse_graph(one(c))
        made = next(n for n in reversed(graph) if n.op.name == c.name)
        root = c.lines[-1].split(" ", 1)[0]
        for path in leaves(made.type):
            value = root
            for k in path:
                lines.append(f"{value}.{k} = TupleGetItem({value}, {k})")
                value += f".{k}"
            results.append(value)
    inputs = ", ".join(p for c in calls for p in c.parameters)
    body = "\n  ".join([*lines, f"%all = MakeTuple({', '.join(results)})"])
    return parse_program(f"graph @step({inputs}) {{\n  {body}\n  return %all\n}}\n")


def one(c: Call) -> str:
    last = c.lines[-1].split(" ", 1)[0]
    body = "\n  ".join(c.lines)
    return f"graph @one({', '.join(c.parameters)}) {{\n  {body}\n  return {last}\n}}\n"


def data(rng: np.random.Generator, spelled: str) -> np.ndarray:
    match = TYPE.fullmatch(spelled)
    assert match is not None
    shape = tuple(int(d) for d in match[2].split(",") if d)
    if match[1] == "float32":
        return rng.uniform(0.1, 0.9, shape).astype(np.float32)
    return rng.integers(0, 2, shape).astype(match[1])


def check(calls: list[Call]) -> None:
    execute = Results(program(calls))
    rng = np.random.default_rng(1)
    inputs = [[data(rng, spelled) for spelled in c.inputs] for c in calls]

    def run(values: list[list[np.ndarray]]) -> list[np.ndarray]:
        flat = [v for own in values for v in own]
        return execute(*flat)

    plain = run(inputs)
    alternatives = [linear_in(node_of(c)) for c in calls]
    for choice in range(max(len(a or ()) for a in alternatives)):
        changed = []
        for c, values, listed in zip(calls, inputs, alternatives, strict=True):
            assert listed is not None, c.name
            positions = listed[choice % len(listed)]
            scaled = {k for i in positions if i < len(c.at) for k in c.at[i]}
            assert scaled, c.name
            changed.append([v * SCALE if k in scaled else v for k, v in enumerate(values)])
        results = iter(zip(run(changed), plain, strict=True))
        for c, listed in zip(calls, alternatives, strict=True):
            pairs = [next(results) for _ in leaves(node_of(c).type)]
            assert any(before.any() for _, before in pairs), f"{c.name} computes nothing here"
            for ours, before in pairs:
                assert np.array_equal(ours, before * SCALE), f"{c.name} is not linear in its operands {listed}"


def node_of(c: Call) -> Node:
    graph = parse_graph(one(c))
    return next(n for n in reversed(graph) if n.op.name == c.name)


CALLS = [call(i, line) for i, line in enumerate(PRIMITIVES.strip().splitlines())]


@pytest.mark.parametrize("part", range(4))
def test_kernels_are_linear_where_the_table_says_so(part: int) -> None:
    check(CALLS[part::4])


def test_every_entry_is_run_or_said_not_to_be() -> None:
    run, other = {c.name for c in CALLS}, set(NOT_RUN.split())
    assert run | other == set(linear.NAMED)
    assert not run & other


def test_the_lists_do_not_overlap() -> None:
    assert not set(linear.NAMED) & (SHAPE_ONLY | HIDDEN | ZEROS | FILLS)


@pytest.mark.parametrize(
    ("line", "linear"),
    [
        ('AllReduce(float32[2]) {op = "sum"} : float32[2]', True),
        ('AllReduce(float32[2]) {op = "max"} : float32[2]', False),
        ("TensorScatterElements(float32[2], int32[1], float32[1], 0, 1) : float32[2]", True),
        ("TensorScatterElements(float32[2], int32[1], float32[1], 0, 2) : float32[2]", False),
    ],
)
def test_what_an_attribute_decides(line: str, linear: bool) -> None:
    assert (linear_in(node_of(call(0, line))) is not None) is linear
