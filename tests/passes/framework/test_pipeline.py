"""Options and pipeline text."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.errors import OptionError
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.report import PassResult
from boost_compile.ir.text import parse_program
from boost_compile.passes import REGISTRY, Pass, compile_program, option, parse_pipeline, print_pipeline
from boost_compile.passes.framework.registry import register
from hypothesis import given
from hypothesis import strategies as st


class Sample(Pass):
    """Does nothing, with options of every kind.

    More about it.
    """

    name = "sample"
    may_match_nothing = True
    count: int = option(4, help="how many", minimum=1, maximum=100)
    rate: float = option(0.5, help="how fast")
    fast: bool = option(False, help="whether")
    mode: str = option("mean", help="which", choices=("mean", "sum"))
    label: str = option("", help="any text")
    sizes: tuple[int, ...] = option((), help="several", minimum=0)
    tags: tuple[str, ...] = option((), help="several words")
    limit: float | None = option(None, help="maybe", minimum=0)

    def run(self, program: Program) -> PassResult:
        return self.result()


class Needy(Pass):
    """Has an option without a default."""

    name = "needy"
    factor: int = option(help="must be given")

    def run(self, program: Program) -> PassResult:
        return self.result()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "sample", Sample)
    monkeypatch.setitem(REGISTRY, "needy", Needy)


def test_summary_is_the_first_line() -> None:
    assert Sample.summary() == "Does nothing, with options of every kind."


def test_an_optional_pass_is_told_by_its_mark() -> None:
    passes = parse_pipeline("sample?{count=2}, needy{factor=1},sample?")
    assert [p.optional for p in passes] == [True, False, True]
    assert passes[0] == Sample(count=2)
    assert print_pipeline(passes) == "sample?{count=2},needy{factor=1},sample?"
    assert not Sample(count=2).optional
    with pytest.raises(OptionError, match=r"unknown pass 'sample\?'"):
        parse_pipeline("sample??")


def test_every_registered_pass_describes_itself() -> None:
    for name, cls in REGISTRY.items():
        assert cls.name == name
        assert cls.summary().endswith(".")


def test_a_pass_is_a_value() -> None:
    assert Sample(count=3) == Sample(count=3) != Sample()
    with pytest.raises(AttributeError):
        Sample().count = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("", ""),
        ("sample", "sample"),
        ("sample{}", "sample"),
        ("sample{count=4}", "sample"),
        (" sample { count = 5 , fast = true } , sample ", "sample{count=5,fast=true},sample"),
        ("sample{\n  count=5\n}", "sample{count=5}"),
        ("sample{fast=true,count=5}", "sample{count=5,fast=true}"),
        ("sample{rate=1}", "sample{rate=1.0}"),
        ("sample{rate=1e-5}", "sample{rate=1e-05}"),
        ("sample{sizes=[1,2, 3]}", "sample{sizes=[1,2,3]}"),
        ("sample{sizes=[]}", "sample"),
        ('sample{label="a, b}=\\"c\\""}', 'sample{label="a, b}=\\"c\\""}'),
        ("sample{label=plain-word}", "sample{label=plain-word}"),
        ('sample{label="none"}', 'sample{label="none"}'),
        (
            "sample{label=lion{ lr = 1e-3,betas=[0.9, 1] }, count=5}",
            'sample{count=5,label="lion{lr=1e-3,betas=[0.9,1]}"}',
        ),
        ('sample{label=a{b="c d",e=f{g=1}}}', 'sample{label="a{b=\\"c d\\",e=f{g=1}}"}'),
        ("sample{label=lion{}}", "sample{label=lion}"),
        ("sample{tags=[a{b=1},c]}", 'sample{tags=["a{b=1}",c]}'),
        ("sample{limit=none}", "sample"),
        ("sample{limit=2}", "sample{limit=2.0}"),
        ("needy{factor=3}", "needy{factor=3}"),
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert print_pipeline(parse_pipeline(text)) == normal


def test_all_options() -> None:
    assert print_pipeline([Sample(count=2)], all_options=True) == (
        'sample{count=2,rate=0.5,fast=false,mode=mean,label="",sizes=[],tags=[],limit=none}'
    )


words = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@given(
    count=st.integers(1, 100),
    rate=st.floats(allow_nan=False),
    fast=st.booleans(),
    mode=st.sampled_from(("mean", "sum")),
    label=words,
    sizes=st.lists(st.integers(0, 9)),
    tags=st.lists(words, max_size=3),
    limit=st.none() | st.floats(0, allow_nan=False),
)
def test_printing_and_parsing_are_inverse(**values: object) -> None:
    passes: list[Pass] = [Sample(**values), Needy(factor=1)]  # type: ignore[arg-type]
    for all_options in (False, True):
        REGISTRY.update(sample=Sample, needy=Needy)
        assert parse_pipeline(print_pipeline(passes, all_options=all_options)) == passes


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("smaple", 0, "unknown pass 'smaple' (did you mean 'sample'?)"),
        ("sample,gradient-acumulation{steps=4}", 7, "(did you mean 'gradient-accumulation'?)"),
        ("sample{cout=3}", 7, "pass 'sample' has no option 'cout' (did you mean 'count'?)"),
        ("dead-code-elimination{x=1}", 22, "has no option 'x' (it has none)"),
        ("sample{count=0}", 13, "pass 'sample': option 'count' must be at least 1, not 0"),
        ("sample{count=101}", 13, "must be at most 100"),
        ("sample{count=four}", 13, "must be of type int, not 'four'"),
        ("sample{count=4.5}", 13, "must be of type int, not '4.5'"),
        ("sample{count=true}", 13, "must be of type int, not 'true'"),
        ('sample{count="4"}', 13, "must be of type int, not '4'"),
        ("sample{count=[4]}", 13, "must be of type int, not a list"),
        ("sample{fast=1}", 12, "must be of type bool (true or false), not '1'"),
        ("sample{mode=men}", 12, "cannot be men (did you mean 'mean'?)"),
        ("sample{sizes=many}", 13, "must be of type list of int, not 'many'"),
        ("sample{sizes=-1}", 13, "must be at least 0, not -1"),
        ("sample{sizes=[[1]]}", 13, "not nested lists"),
        ("sample{sizes=[1,-1]}", 13, "must be at least 0, not -1"),
        ("sample{limit=nan}", 13, "must be at least 0, not nan"),
        ("sample{count=1,count=2}", 15, "given twice"),
        ("sample{count}", 12, "expected '=' after option 'count', found '}'"),
        ("sample{count=", 13, "expected a value, found the end"),
        ("sample{count=1", 14, "expected ',' after option 'count' (or '}'), found the end"),
        ("sample{label=a{b}}", 16, "expected '=' after option 'b', found '}'"),
        ("sample{label=a{b=1}", 19, "expected ',' after option 'label' (or '}'), found the end"),
        ("sample{label=a{b=c{d=e{f=1}}}}", 22, "options are nested too deeply"),
        ("sample{count=4{a=1}}", 13, "must be of type int, not '4{a=1}'"),
        ("sample{count=1}?", 15, "the question mark of an optional pass stands behind its name: write 'sample?{…}'"),
        ("sample sample", 7, "expected ',' after pass 'sample', found 'sample'"),
        ("sample,", 7, "expected the name of a pass, found the end"),
        (",sample", 0, "expected the name of a pass, found ','"),
        ('sample{label="open}', 13, "expected a value, found '\"'"),
        ("needy", 0, "pass 'needy' needs option factor=… (int): must be given"),
        ("gradient-accumulation{steps=0}", 28, "option 'steps' must be at least 1, not 0"),
    ],
)
def test_errors_mark_the_place(text: str, column: int, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_pipeline(text)
    first, shown, mark = str(caught.value).split("\n")
    assert message in first
    assert shown == "  " + text
    assert mark == "  " + " " * column + "^"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "pass 'sample': option 'count' must be at least 1"),
        ({"count": True}, "must be of type int, not true"),
        ({"count": 2.0}, "must be of type int, not 2.0"),
        ({"rate": "fast"}, "must be of type float, not fast"),
        ({"sizes": "12"}, "must be of type list of int, not 12"),
        ({"sizes": [1, "2"]}, "must be of type list of int, not 2"),
        ({"count": None}, "must be of type int, not none"),
    ],
)
def test_python_values_are_checked_too(values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Sample(**values)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_one_value_is_a_list_of_one() -> None:
    assert print_pipeline(parse_pipeline("sample{sizes=3}")) == "sample{sizes=[3]}"
    assert Sample(sizes=3) == Sample(sizes=[3])  # type: ignore[arg-type]


def test_python_values_are_normalised() -> None:
    import numpy as np

    made = Sample(count=np.int64(7), rate=2, sizes=[1, 2])  # type: ignore[arg-type]
    assert made.options()["count"] == 7
    assert type(made.count) is int
    assert type(made.rate) is float
    assert made.sizes == (1, 2)


def test_register_refuses_a_taken_name() -> None:
    class Other(Pass):
        """Another."""

        name = "sample"

    assert register(Sample) is Sample
    with pytest.raises(OptionError, match="taken"):
        register(Other)


class _EntryPoint:
    def __init__(self, name: str, loaded: object):
        self.name, self.value, self.loaded = name, "module:Class", loaded

    def load(self) -> object:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


@pytest.mark.parametrize(
    ("loaded", "message"),
    [
        (ImportError("no module"), "cannot be imported: no module"),
        (int, "is no Pass class"),
        (Sample, "is no Pass class"),
    ],
)
def test_broken_entry_points(loaded: object, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [_EntryPoint("foreign", loaded)])
    with pytest.raises(OptionError, match=message):
        parse_pipeline("foreign")


def test_other_distributions_are_asked_only_for_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search goes through all that is installed, which takes as long as compiling a small network."""
    asked: list[str] = []

    def entry_points(group: str) -> list[_EntryPoint]:
        asked.append(group)
        return []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    program = parse_program("graph @g(%x: float32[2]) {\n  %y = Neg(%x)\n  return %y\n}")
    compiled = compile_program(program, "dead-code-elimination")
    compiled = compile_program(compiled, "common-subexpression-elimination")
    assert asked == []
    compiled.reports[0].name = "foreign"
    compile_program(compiled, "dead-code-elimination")
    assert asked == ["boost_compile.passes"]


def test_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign(Pass):
        """From elsewhere."""

        name = "foreign"

    groups = []

    def entry_points(group: str) -> list[_EntryPoint]:
        groups.append(group)
        return [_EntryPoint("foreign", Foreign)]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    try:
        assert parse_pipeline("sample") == [Sample()]
        assert groups == []
        assert parse_pipeline("foreign") == [Foreign()]
        assert groups == ["boost_compile.passes"]
    finally:
        REGISTRY.pop("foreign", None)
