"""Valid inputs to start from: small programs with all that the formats know, spelled in every format."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from boost_compile.ir.core.program import Program
from boost_compile.ir.formats.mindir.reader import read_mindir
from boost_compile.ir.formats.storage.directory import PROGRAM
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.formats.storage.save import save
from boost_compile.ir.text import parse_program, print_program

ROOT = Path(__file__).parent.parent
TRAINED = """
state %w: float32[3,2]<0.5, 1.0, -2.0, 0.25, 3.0, 4.0> role=weight trainable=true info {ref_key = "w"}
state %moment: float32[3,2] role=slot weight=%w
state %rate: float32[]<0.1> role=hyperparameter

graph @step(%x: float32[4,3]) -> (loss) {
  const %u = umonad
  %l = Load(%w, %u) : float32[3,2] scope("Default/network-Net/Load-op0")
  %y = MatMul(%x, %l, false, false) : float32[4,2] primal {unique_id = "1"} scope("Default/network-Net/fc-Dense")
  %f = Partial(@double, %y)
  %d = call(%f) : float32[4,2]
  %loss = ReduceMean(%d, (), false) : float32[] primal {unique_id = "2"} scope("Default/network-Net")
  %seed = Fill(type<float32>, (4, 2), 0.125) : float32[4,2] primal {forward_unique_id = "2"} scope("Gradients/Net")
  %g = MatMul(%x, %seed, true, false) : float32[3,2] primal {forward_unique_id = "1"} scope("Gradients/Net/fc")
  %r = Load(%rate, %u) : float32[] scope("Default/optimizer-Momentum")
  %up = ApplyMomentum(%w, %moment, %r, %g, 0.9, %u) : float32[3,2] scope("Default/optimizer-Momentum")
  %u1 = UpdateState(%u, %up) : umonad
  %out = Depend(%loss, %u1) : float32[]
  return %out

  func @double(%v: float32[4,2]) {
    %d = Mul(%v, float32[]<2.0>) : float32[4,2]
    return %d
  }
}
"""


@cache
def programs() -> tuple[Program, ...]:
    """The training step above, compiled and not, and programs of the text-IR tests that read without flags."""
    from boost_compile.passes.framework.manager import compile_program

    trained = parse_program(TRAINED)
    compiled = compile_program(trained, "gradient-accumulation{steps=2},overflow-check")
    others = ("functions", "round_trip")
    return (trained, compiled, *(parse_program((ROOT / f"ir/text/{name}.ir").read_text()) for name in others))


def texts() -> list[bytes]:
    return [print_program(program).encode() for program in programs()]


@cache
def mindirs() -> tuple[bytes, ...]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "m.mindir")
        written = []
        for program in programs():
            save(program, path)
            read_mindir(path)
            written.append(path.read_bytes())
    return tuple(written)


@cache
def program_files() -> tuple[dict[str, bytes], ...]:
    """Files of program directories, by name."""
    with TemporaryDirectory() as folder:
        found = []
        for i, program in enumerate(programs()):
            path = Path(folder, f"{i}.boost")
            save(program, path)
            load(path)
            files = {file.name: file.read_bytes() for file in path.iterdir()}
            # Without checksums, which would refuse all damage before anything else sees it.
            files[PROGRAM] = _without_checksums(json.loads(files[PROGRAM]))
            found.append(files)
    return tuple(found)


def _without_checksums(document: dict[str, Any]) -> bytes:
    for part in (document, *document["graphs"].values(), *document["state"].values()):
        part.pop("checksum", None)
    return json.dumps(document, ensure_ascii=False).encode()


@cache
def onnxs() -> tuple[bytes, ...]:
    """Matrix products, shapes that are computed, and a weight in a data file."""
    from onnx import TensorProto, helper, numpy_helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])
    weights = [
        numpy_helper.from_array(np.ones((3, 2), np.float32), "w"),
        numpy_helper.from_array(np.array([-1, 2]), "s"),
    ]
    beside = TensorProto(name="v", dims=[3, 2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "data_0"), ("offset", "64"), ("length", "24")):
        beside.external_data.add(key=key, value=value)
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w"], ["a"]),
        make("Shape", ["a"], ["sh"]),
        make("Concat", ["sh", "s"], ["c"], axis=0),
    ]
    nodes += [make("Reshape", ["a", "s"], ["b"]), make("Relu", ["b"], ["d"]), make("Gemm", ["x", "v"], ["e"])]
    nodes += [make("Add", ["d", "e"], ["f"]), make("Softmax", ["f"], ["y"], axis=-1)]
    graph = helper.make_graph(nodes, "g", [x], [y], [*weights, beside])
    other = helper.make_graph([make("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    return tuple(helper.make_model(g, opset_imports=opset).SerializeToString() for g in (graph, other))


def arrays() -> dict[str, np.ndarray]:
    return {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "y": np.array([1, 2, 3, 4], np.int32)}


def npz() -> list[bytes]:
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **arrays())
    np.savez_compressed(packed, **arrays())
    return [plain.getvalue(), packed.getvalue()]


def npy() -> list[bytes]:
    written = []
    for array in (np.eye(6, dtype=np.float32)[:2], np.asfortranarray(np.eye(6))):
        file = io.BytesIO()
        np.save(file, array)
        written.append(file.getvalue())
    return written


def safetensors() -> list[bytes]:
    from safetensors.numpy import save as encoded

    return [encoded(arrays(), {"format": "boost-compile"}), encoded({"w": np.ones((3, 2), np.float16)})]


def checkpoints() -> list[bytes]:
    """As MindSpore's checkpoint.proto spells them: (name, tensor) pairs, one of them in two pieces, and a string."""
    from boost_compile.ir.files.protobuf import delimited, tag, varint

    def pair(name: str, type_: str, dims: tuple[int, ...], content: bytes) -> bytes:
        shape = b"".join(tag(1, 0) + varint(d) for d in dims)
        tensor = shape + delimited(2, type_.encode()) + delimited(3, content)
        return delimited(1, delimited(1, name.encode()) + delimited(2, tensor))

    w = pair("w", "Float32", (3, 2), bytes(range(24)))
    pieces = pair("v", "Float32", (3, 2), bytes(8)) + pair("v", "Float32", (3, 2), bytes(16))
    return [w + pieces, w + pair("epoch", "Int32", (0,), bytes(4)) + pair("note", "str", (), b"text")]


def pipelines() -> list[bytes]:
    return [
        b"gradient-accumulation{steps=4,reduction=mean},overflow-check",
        b'clip-gradients{by=global-norm,limit=1.0},parameter-groups{match=["a*","b"],lr_factor=0.5}',
        b'loss-scale{mode=dynamic,init=1024,window=10},dim-reduce{basis="b",n_components=4},less-bn',
    ]


def configurations() -> list[bytes]:
    """The first byte says the language: T for TOML, J for JSON."""
    document = {
        "target": "cpu",
        "pipeline": [{"pass": "gradient-accumulation", "steps": 4}, {"pass": "overflow-check"}],
    }
    toml = b'Ttarget = "cpu"\n[[pipeline]]\npass = "clip-gradients"\nlimit = 1.0\n'
    boost = {
        "boost": {"mode": "manual", "less_bn": True, "grad_freeze": True, "dim_reduce": False},
        "common": {"gradient_split_groups": [50, 100], "device_number": 8},
        "grad_freeze": {"param_groups": 10, "freeze_type": 1, "freeze_p": 0.7, "total_steps": 65536},
        "grad_accumulation": {"grad_accumulation_step": 2},
    }
    return [b"J" + json.dumps(document).encode(), toml, b"J" + json.dumps(boost).encode()]
