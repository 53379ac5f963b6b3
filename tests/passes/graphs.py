"""Small training graphs that several tests of passes take."""

from __future__ import annotations

from pathlib import Path

from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program

from tests import graphs
from tests.material import material

WEIGHTED = """
state %w: float32[2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2], %n: float32[], %mask: bool[2]) -> (loss) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %rows:7 = Mul(%y, %x) @f
  %wave = Cast(%y, 48) : complex64[2] @f
  %loss = ReduceSum(%rows:7, (), false) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %y)
  %up = ApplyGradientDescent(%w, %rate, %g, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
"""The gradient of %w is %x squared, and %n or %mask may weigh a micro-batch."""

HALF_LOSS = """graph @net(%x: float16[4,3], %labels: int32[4]) {
  %loss = SparseSoftmaxCrossEntropyWithLogits(%x, %labels) {is_grad = false, sens = 1.0} : float16[] scope("Default/loss") primal {unique_id = "1"}
  %twice = Add(%loss, %loss)
  %dx = SparseSoftmaxCrossEntropyWithLogits(%x, %labels) {is_grad = true, sens = 1.0} : float16[4,3]
  %all = MakeTuple(%twice, %dx)
  return %all
}"""  # noqa: E501
"""A loss and its gradient in half precision, for which a GPU has kernels of float32 alone."""

LAMB = """
state %w: float32[2] role=weight
graph @step(%x: float32[2]) {
  %new = Lamb(%w, %w, %w, 1.0, 1.0, 0.1, 0.9, 0.99, 1e-06, %x, umonad) : float32[2]
  %u = UpdateState(umonad, %new)
  %r = Depend(%x, %u)
  return %r
}
"""
"""An optimizer that a CPU has no kernel for."""

NETWORK = """  %v0 = Load(%v, umonad) @f
  %w0 = Load(%w, umonad) @f
  %y = Mul(%v0, %x) @f
  %z = Mul(%y, %w0) @f
  %loss = ReduceSum(%z, (), false, false) @f
  %dz = OnesLike(%z) @b
  %dw = Mul(%dz, %y) @b
  %dy = Mul(%dz, %w0) @b
  %dv = Mul(%dy, %x) @b
  %t = UpdateState(umonad, %y, %z, %dy)
"""
"""Two layers, each a weight that its input is multiplied by; with their gradients, and the token behind it."""

STEP = (
    """
state %v: float32[2] role=weight
state %w: float32[2] role=weight
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2]) -> (loss) {
"""
    + NETWORK
    + """  %up1 = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[2]
  %up2 = ApplyGradientDescent(%w, %rate, %dw, %t) : float32[2]
  %end = UpdateState(%t, %up1, %up2)
  %r = Depend(%loss, %end)
  return %r
}"""
)
"""An update of each layer of :data:`NETWORK`."""


SLOT_SHOWN = (
    """
state %v: float32[2] role=weight
state %w: float32[2] role=weight
state %a: float32[2]
state %b: float32[2]
state %seen: float32[2]
graph @step(%x: float32[2]) -> (loss) {
"""
    + NETWORK
    + """  %up1 = ApplyMomentum(%v, %a, float32[]<0.1>, %dv, float32[]<0.9>, %t) : float32[2]
  %t1 = UpdateState(%t, %up1)
  %up2 = ApplyMomentum(%w, %b, float32[]<0.1>, %dw, float32[]<0.9>, %t1) : float32[2]
  %t2 = UpdateState(%t1, %up2)
  %b1 = Load(%b, %t2)
  %log = Assign(%seen, %b1, %t2)
  %end = UpdateState(%t2, %log)
  %r = Depend(%loss, %end)
  return %r
}"""
)
"""%w is updated with a slot that the graph shows too."""


def but(*changes: tuple[str, str]) -> str:
    """`STEP` with other text in place of some."""
    text = STEP
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


FROZEN = but(
    ("role=weight\nstate %w", "role=weight\nstate %frozen: float32[2] role=weight trainable=true\nstate %w"),
    ("%z = Mul(%y, %w0)", "%f0 = Load(%frozen, umonad) @f\n  %yf = Mul(%y, %f0) @f\n  %z = Mul(%yf, %w0)"),
)
"""A third weight that is said to be trained, and is not."""
UNTRAINED = FROZEN.replace("trainable=true", "trainable=false")
ON_ITS_WAY = but(
    ("%z = Mul(%y, %w0)", "%z = Add(%y, %w0)"),
    ("%dw = Mul(%dz, %y)", "%dw = Mul(%dz, %x)"),
    ("%dy = Mul(%dz, %w0)", "%dy = Mul(%dw, %y)"),
)
"""The gradient of %w is also what that of %v is computed from, and waits in a chain of tokens."""
IN_TURN = but(
    ("  %dv = Mul(%dy, %x) @b\n", ""),
    ("  %up1 = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[2]\n", ""),
    (
        "%end = UpdateState(%t, %up1, %up2)",
        """%t2 = UpdateState(%t, %up2)
  %w2 = Load(%w, %t2) @b
  %dv = Mul(%dy, %w2) @b
  %t3 = UpdateState(%t2, %dv)
  %up1 = ApplyGradientDescent(%v, %rate, %dv, %t3) : float32[2]
  %end = UpdateState(%t3, %up1)""",
    ),
)
"""The gradient of %v is taken after %w has moved."""
INSIDE = but(
    ("  %dv = Mul(%dy, %x) @b\n", ""),
    (
        "%up1 = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[2]",
        "%up1 = call(@move, %v, %rate, %dy, %x, %t) : float32[2]",
    ),
    (
        "  return %r\n}",
        """  return %r
  func @move(%p: float32[2], %q: float32[], %dy: float32[2], %x: float32[2], %u: umonad) {
    %dv = Mul(%dy, %x) @b
    %up = ApplyGradientDescent(%p, %q, %dv, %u) : float32[2]
    %u2 = UpdateState(%u, %up)
    %done = Depend(%up, %u2)
    return %done
  }
}""",
    ),
)
"""The gradient of %v is computed in a function that also updates it."""
IN_FUNCTION = but(
    (
        "%up1 = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[2]",
        "%up1 = call(@move, %v, %rate, %dv, %t) : float32[2]",
    ),
    (
        "  return %r\n}",
        """  return %r
  func @move(%p: float32[2], %q: float32[], %g: float32[2], %u: umonad) {
    %half = Mul(%g, float32[]<0.5>)
    %up = ApplyGradientDescent(%p, %q, %half, %u) : float32[2]
    %u2 = UpdateState(%u, %up)
    %done = Depend(%up, %u2)
    return %done
  }
}""",
    ),
)
"""The gradient of %v is made ready in a function."""
SHARED = IN_FUNCTION.replace(
    "%up2 = ApplyGradientDescent(%w, %rate, %dw, %t) : float32[2]",
    "%up2 = call(@move, %w, %rate, %dw, %t) : float32[2]",
)
"""One function moves both weights."""
DOUBLE = STEP.replace("float32[2]", "float64[2]").replace("float32[]", "float64[]")
CROSSING = but(
    ("role=weight\nstate %w", "role=weight\nstate %log: float32[2] role=unknown\nstate %w"),
    (
        "%end = UpdateState(%t, %up1, %up2)",
        "%seen = AssignAdd(%log, %dy, %t)\n  %end = UpdateState(%t, %up1, %up2, %seen)",
    ),
)
"""The update side takes a value of the backward part that is no gradient."""
ONE_LAYER = but(("ApplyGradientDescent(%w, %rate, %dw, %t)", "Neg(%w0)"))
TWICE = but(
    (
        "%end = UpdateState(%t, %up1, %up2)",
        """%t2 = UpdateState(%t, %up1, %up2)
  %up3 = ApplyGradientDescent(%v, %rate, %dy, %t2) : float32[2]
  %end = UpdateState(%t2, %up3)""",
    ),
)
"""Two gradients move %v, one after the other."""
IN_PARTS = but(
    ("  %t = ", "  %sum = Add(%dv, %dy)\n  %t = "),
    ("ApplyGradientDescent(%v, %rate, %dv, %t)", "ApplyGradientDescent(%v, %rate, %sum, %t)"),
)
"""The gradient of %v has two summands."""
PART_OF_OTHER = IN_PARTS.replace("%rate, %dw, %t)", "%rate, %dv, %t)")
"""One of them is the gradient of %w too."""
MEASURED = IN_PARTS.replace("role=weight\nstate %w", "role=weight\nstate %log: float32[2] role=slot\nstate %w")
MEASURED = MEASURED.replace("  %sum = ", "  %squares = Square(%dv)\n  %sum = ")
MEASURED = MEASURED.replace("%end = ", "%seen = Assign(%log, %squares, %t)\n  %end = ").replace("%up2)", "%up2, %seen)")
"""One of them is measured by itself."""
DECLARED_LAST = but(
    ("state %v: float32[2] role=weight\nstate %w: float32[2] role=weight", "state %w: float32[2] role=weight"),
    ("state %rate", "state %v: float32[2] role=weight\nstate %rate"),
    ("  %up1 = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[2]\n", ""),
    ("  %end = ", "  %up1 = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[2]\n  %end = "),
)
"""%w stands in front of %v, and its gradient is ready earlier all the same."""
FLAG = "program @flag {\n  target ascend\n  schedule @step\n}\n" + but(
    ("role=weight\nstate %w", "role=weight\nstate %log: int32[8] role=slot\nstate %w"),
    (
        "  %t = ",
        """  %cleared = NPUClearFloatStatusV2(int32[8]<zeros>) : int32[8]
  %after = MakeTuple(%dv, %dw)
  %waited = Depend(int32[8]<zeros>, %after)
  %flag = NPUGetFloatStatusV2(%waited) : int32[8]
  %t = """,
    ),
    ("%end = ", "%seen = Assign(%log, %flag, %t)\n  %end = "),
    ("%up1, %up2)", "%up1, %up2, %seen)"),
)
"""The file asks an Ascend's flag, and keeps the answer."""
SUM = """%sum = AllReduce(%FLAG) {group = "hccl_world_group", op = "sum"}"""
FLAG_SUMMED = FLAG.replace("  %t = ", f"  {SUM.replace('FLAG', 'flag')}\n  %t = ").replace("%log, %flag", "%log, %sum")
"""It sums the answers of all ranks itself."""
ALONE = "program @alone {\n  target ascend\n  schedule @step\n}\n" + but(
    (
        "  %up1 = ",
        "  %status = NPUAllocFloatStatus() : float32[8]\n  %asked = NPUGetFloatStatus(%status) : float32[8]\n  %up1 = ",
    ),
)
"""The file asks an Ascend's flag for overflows."""
ALONE_SUMMED = ALONE.replace("  %up1 = ", f"  {SUM.replace('FLAG', 'asked')}\n  %up1 = ")
WAITING = but(
    (
        "  %up2 = ApplyGradientDescent(%w, %rate,",
        """  %now = Load(%rate, umonad)
  %late = Depend(%now, %z)
  %up2 = ApplyGradientDescent(%w, %late,""",
    ),
)
"""An update waits for a value of the network."""
SUMS = but(
    (
        "  %t = ",
        """  %sv = AllReduce(%dv) {group = "mccl_world_group", op = "sum"}
  %sw = AllReduce(%dw) {group = "mccl_world_group", op = "sum"}
  %t = """,
    ),
    ("%rate, %dv, %t)", "%rate, %sv, %t)"),
    ("%rate, %dw, %t)", "%rate, %sw, %t)"),
)
"""The file sums its gradients over ranks, and divides by nothing."""
NARROWED = but(
    ("  %t = ", "  %narrow = Cast(%dv, 42) : float16[2]\n  %wide = Cast(%narrow, 43) : float32[2]\n  %t = "),
    ("ApplyGradientDescent(%v, %rate, %dv, %t)", "ApplyGradientDescent(%v, %rate, %wide, %t)"),
)
"""The update takes a gradient in half precision."""
GATED = but(
    (
        """  %up1 = ApplyGradientDescent(%v, %rate, %dv, %t) : float32[2]
  %up2 = ApplyGradientDescent(%w, %rate, %dw, %t) : float32[2]
  %end = UpdateState(%t, %up1, %up2)
  %r = Depend(%loss, %end)
""",
        """  %good = Less(%loss, float32[]<1000.0>)
  %move = Partial(@move, %v, %w, %rate, %dv, %dw, %loss, %t)
  %stay = Partial(@stay, %loss)
  %chosen = Switch(%good, %move, %stay)
  %r = call(%chosen) : float32[]
""",
    ),
    (
        "  return %r\n}",
        """  return %r
  func @move(%p: float32[2], %q: float32[2], %s: float32[], %a: float32[2], %b: float32[2], %l: float32[], %u: umonad) {
    %up1 = ApplyGradientDescent(%p, %s, %a, %u) : float32[2]
    %up2 = ApplyGradientDescent(%q, %s, %b, %u) : float32[2]
    %end = UpdateState(%u, %up1, %up2)
    %twice = Mul(%l, float32[]<2.0>)
    %done = Depend(%twice, %end)
    return %done
  }
  func @stay(%l: float32[]) {
    %twice = Mul(%l, float32[]<2.0>)
    return %twice
  }
}""",
    ),
)
"""The branch that updates returns twice the loss, and so does the other one."""
HALVED = GATED.replace("    %up1 = ", "    %c = Mul(%a, float32[]<0.5>)\n    %d = Mul(%b, float32[]<0.5>)\n    %up1 = ")
HALVED = HALVED.replace("%s, %a, %u)", "%s, %c, %u)").replace("%s, %b, %u)", "%s, %d, %u)")
"""It unscales both gradients."""
BOTH_MOVE = GATED.replace("Partial(@stay, %loss)", "Partial(@stay, %v, %dv, %loss, %t)").replace(
    "@stay(%l: float32[]) {\n", "@stay(%p: float32[2], %a: float32[2], %l: float32[], %u: umonad) {\n"
)
BOTH_MOVE = BOTH_MOVE.replace(
    "    return %twice",
    "    %up = AssignAdd(%p, %a, %u)\n    %o = UpdateState(%u, %up)\n    %z = Depend(%twice, %o)\n    return %z",
)
"""The other branch moves %v too."""
PURE = """
graph @main(%x: float32[2]) {
  %y = Neg(%x)
  return %y
}"""
COUNTS = but(
    ("role=weight\nstate %w", "role=weight\nstate %log: int32[2] role=slot\nstate %w"),
    (
        "  %t = ",
        """  %finite = IsFinite(%dw)
  %one = Cast(%finite, 34) : int32[2]
  %all = AllReduce(%one) {group = "mccl_world_group", op = "sum"}
  %t = """,
    ),
    (
        "%end = UpdateState(%t, %up1, %up2)",
        "%seen = Assign(%log, %all, %t)\n  %end = UpdateState(%t, %up1, %up2, %seen)",
    ),
)
"""The file itself counts over ranks."""
SPARSE = but(
    ("  %t = ", "  %twice = MakeTuple(%dw, %dw) @b\n  %rows = Concat(%twice, 0) : float32[4] @b\n  %t = "),
    ("ApplyGradientDescent(%w, %rate, %dw, %t)", "ScatterSub(%w, int32[4]<1, 0, 1, 0>, %rows, %t)"),
)
"""The update moves rows of %w, some of them twice."""
OPEN = but(
    ("@step(%x: float32[2])", "@step(%x: float32[?])"), ("%dv = Mul(%dy, %x)", "%dv = Mul(%dy, %x) : float32[?]")
)
"""A gradient whose shape is not known."""
CARRIED = but(
    ("@step(%x: float32[2])", "@step(%x: float32[2], %rates: float32[?])"),
    (
        "  %up2 = ApplyGradientDescent(%w, %rate,",
        "  %own = ReduceSum(%rates, (), false, false)\n  %up2 = ApplyGradientDescent(%w, %own,",
    ),
)
"""The update side takes an input whose shape is not known."""
RATED = but(("@step(%x: float32[2])", "@step(%x: float32[2], %own: float32[])"), ("%w, %rate, %dw", "%w, %own, %dw"))
"""The step size of %w is an input."""
DECAY_FIRST = but(
    (
        "  %t = ",
        """  %decay = Mul(%v0, float32[]<0.1>)
  %sum = Add(%dv, %decay)
  %half = Mul(%sum, float32[]<0.5>)
  %t = """,
    ),
    ("%rate, %dv, %t)", "%rate, %half, %t)"),
)
"""The file unscales a gradient with its decay."""
BALLAST = """
state %n: float32[] role=counter
state %b: float32[2] role=weight
graph @main(%x: float32[2]) {
  %unread = Load(%b, umonad)
  %heavy = Exp(%x)
  %pack = MakeTuple(%unread, %heavy)
  %u1 = UpdateState(umonad, %pack)
  %write = call(@count, %n, %u1) : float32[]
  %u2 = UpdateState(%u1, %write, %heavy)
  %r = Depend(%x, %u2)
  return %r
  func @count(%p: float32[], %u: umonad) {
    %write = AssignAdd(%p, float32[]<1.0>, %u)
    %u1 = UpdateState(%u, %write)
    %done = Depend(%write, %u1)
    return %done
  }
}"""
"""A read that nothing takes, and a value that only orders, stand in front of what a function writes."""


def source(name: str) -> Program:
    """A text above, a graph of tests/material (``NAME@TARGET``: for that target), or of an ``.ir`` file here."""
    if name.isupper():
        return graphs.program(globals()[name])
    if not name.endswith(".ir"):
        program = material(name.partition("@")[0])
        program.target = name.partition("@")[2] or program.target
        return program
    return assign_roles(parse_program((Path(__file__).parent / name).read_text()))
