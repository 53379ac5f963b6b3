"""Programs that are written as Python."""

from __future__ import annotations

from boost_compile.ir.core.data import BytesData
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.op import Op
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import tensor

HARM = "__import__('os').system('touch harmed')"


CORPUS = (
    f"'{HARM}'", f'"); {HARM} #', f"'); {HARM} #", f'"""\n{HARM}\n"""', f"'''\n{HARM}\n'''", f"\\'); {HARM} #",
    f"\n{HARM}\n", f"\r{HARM}\r", f"\u2028{HARM}\u2029", f"{{{HARM}}}", f"%({HARM})s", f"\x00{HARM}\x00", "\\",
    "\\\\'", '\\"', "\\N{LEFT CURLY BRACKET}", "\\x27", "#", "# coding: utf-7", "\ufeff", "ｅｖａｌ", "ªbc", "ﬁ",
    "𝐞𝐱𝐞𝐜", "class", "lambda", "match", "None", "self", "state", "prefix", "eval", "exec", "open", "super", "primitive",
    "function", "nn", "ms", "Network", "State", "load", "__init__", "__class__", "__del__", "__builtins__",
    "construct", "attrs", "name", "add_prim_attr", "a b", "a.b", "a-b", "a/b", "0", "", " ", "x" * 5000, "é", "日本",
    "🙂", "a:b", "$(touch harmed)", "`touch harmed`", "../../harmed", "{0.__class__}",
)  # fmt: skip
"""What a file may call its parts: quotes, ends of strings and lines, look-alikes, keywords, names with a meaning."""


def network(text: str) -> Program:
    """A graph that holds ``text`` wherever a file may: names, scopes, attributes, strings, a primitive."""
    graph = Graph("step")
    x = graph.add_input(text, tensor("float32", 2, 2))
    weight = graph.state(text, tensor("float32", 2, 2))
    part = text.replace("/", "|") or "part"
    scope = f"Default/{part}-{part}/inner-{part}/ReLU-op0"
    y = graph.create(Op("MatMul", {text: text, "list": (text, [text])}, text, 1), [x, weight], x.type, scope=scope)
    y = graph.create(Op(f"My{text}", {"values": (text,)}, kind=1), [y, graph.constant(text)], y.type, scope=scope)
    graph.result = graph.create(Op("ReLU", kind=2), [y], y.type, scope=f"Default/{part}/ReLU-op1", name=text)
    program = Program({"step": graph}, {}, Schedule((Entry("step"),)), name="hostile")
    program.add_state(text, tensor("float32", 2, 2), "unknown", BytesData(bytes(16)))
    return program
