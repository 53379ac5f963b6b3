"""Who holds what: balance, and pieces that cover each weight that is cut."""

from __future__ import annotations

import random

import pytest
from boost_compile.ir.core.names import OWNED
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.ranks.dealing import ALIGNMENT, bytes_of_ranks, deal
from boost_compile.ir.text import parse_program


def dealt_out(sizes: list[int], mode: str) -> Program:
    """Weights of so many elements, each with two slots."""
    states = [(f"w{i}", n, "weight") for i, n in enumerate(sizes)]
    states += [(f"{slot}.w{i}", n, "slot") for i, n in enumerate(sizes) for slot in ("m", "v")]
    text = "".join(f'state %"{name}": float32[{n}] role={role}\n' for name, n, role in states)
    program = parse_program(f"{text}graph @step(%x: float32[2]) {{\n  return %x\n}}")
    for variable in program.state.values():
        if variable.role == "slot":
            variable.weight = variable.name.partition(".")[2]
            variable.info[OWNED] = mode
    return program


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("seed", range(12))
def test_auto_keeps_every_rank_within_five_percent_of_the_mean(seed: int, ranks: int) -> None:
    rng = random.Random(seed)
    sizes = [int(10 ** rng.uniform(3.5, 6)) for _ in range(rng.randint(1, 9))]
    held = bytes_of_ranks(dealt_out(sizes, "auto"), ranks)
    assert max(held) <= 1.05 * sum(held) / ranks


def test_auto_cuts_nothing_where_whole_weights_balance() -> None:
    assert not deal(dealt_out([1000] * 8, "auto"), 4).cut
    assert set(deal(dealt_out([1000] * 5, "auto"), 4).cut) == {"w0"}


@pytest.mark.parametrize(("mode", "cut"), [("whole", set()), ("flat", {"w1"}), ("auto", {"w0", "w1", "w2", "w3"})])
def test_what_is_larger_than_a_share_is_cut(mode: str, cut: set[str]) -> None:
    """A share of four ranks is 2100 of 8400 elements. Only auto balances the rest."""
    dealt = deal(dealt_out([2100, 4200, 1050, 1050], mode), 4)
    assert set(dealt.cut) == cut
    assert set(dealt.owner) == {"w0", "w1", "w2", "w3"} - cut


@pytest.mark.parametrize("elements", [500, 512, 4097])
@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_pieces_cover_a_weight_and_begin_where_vectors_do(elements: int, ranks: int) -> None:
    dealt = deal(dealt_out([elements], "flat"), ranks)
    pieces = [dealt.pieces(rank)["m.w0"] for rank in range(ranks)]
    assert [i for piece in pieces for i in range(piece.start, piece.stop)] == list(range(elements))
    assert all(piece.start % ALIGNMENT == 0 and piece.stop > piece.start for piece in pieces)


def test_what_is_too_small_for_a_piece_each_stays_whole() -> None:
    assert not deal(dealt_out([48], "flat"), 4).cut
    assert deal(dealt_out([49], "flat"), 4).cut


def test_a_process_by_itself_holds_all() -> None:
    dealt = deal(dealt_out([500], "flat"), 1)
    assert not dealt.cut
    assert not dealt.owner


def test_a_copy_of_the_piece_counts() -> None:
    """Two slots and the copy, of 256 elements each."""
    assert bytes_of_ranks(dealt_out([512], "flat"), 2) == [3 * 256 * 4] * 2
