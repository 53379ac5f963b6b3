"""A training step whose forward part is a chain: each layer's result is kept for the backward part. Marked as the
exporter marks a training cell."""

from __future__ import annotations

from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program

WIDTH = 65536
"""Elements of each value: 256 kB."""


def chain(layers: int) -> Program:
    """``layers`` times x = tanh(w * x), one weight of one element each, loss = sum(x), plain gradient descent."""
    value, weight = f"float32[{WIDTH}]", "float32[1]"
    lines = []
    for k in range(layers):
        x = "%x" if k == 0 else f"%t{k - 1}"
        scope = f'scope("Default/block{k // 4}-Block/layer{k}-Layer/op") primal {{unique_id = "{k}'
        lines += [
            f"%w{k}.0 = Load(%w{k}, umonad) : {weight}",
            f'%m{k} = Mul({x}, %w{k}.0) : {value} {scope}m"}}',
            f'%t{k} = Tanh(%m{k}) : {value} {scope}t"}}',
        ]
    last, loss = layers - 1, 'unique_id = "loss"}'
    lines += [
        f'%loss = ReduceSum(%t{last}, (0,), false, false) : float32[] scope("Default/loss") primal {{{loss}',
        f'%d{last} = OnesLike(%t{last}) : {value} scope("Gradients/Default/loss") primal {{forward_{loss}',
    ]
    for k in reversed(range(layers)):
        x = "%x" if k == 0 else f"%t{k - 1}"
        scope = f'scope("Gradients/Default/layer{k}-Layer") primal {{forward_unique_id = "{k}'
        lines += [
            f'%dm{k} = TanhGrad(%t{k}, %d{k}) : {value} {scope}t"}}',
            f'%p{k} = Mul(%dm{k}, {x}) : {value} {scope}m"}}',
            f'%g{k} = ReduceSum(%p{k}, (0,), true, false) : {weight} {scope}m"}}',
        ]
        if k:
            lines.append(f'%d{k - 1} = Mul(%dm{k}, %w{k}.0) : {value} {scope}m"}}')
    token = "umonad"
    for k in range(layers):
        lines += [
            f"%s{k} = Mul(%g{k}, float32[]<0.0001>) : {weight}",
            f"%a{k} = AssignSub(%w{k}, %s{k}, {token}) : {weight}@w{k}",
            f"%u{k} = UpdateState({token}, %a{k})",
        ]
        token = f"%u{k}"
    lines.append(f"%r = Depend(%loss, {token})\nreturn %r")
    states = "".join(f"state %w{k}: {weight} role=weight\n" for k in range(layers))
    return parse_program(f"{states}graph @step(%x: {value}) {{\n" + "\n".join(lines) + "\n}\n")
