"""The thread that reads the next micro-batch: order, errors, and its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.runtime.data.read_ahead import read_ahead

from tests.waiting import wait_until


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("boost-compile-data")]


def test_items_come_in_order_and_one_is_read_ahead() -> None:
    read: list[int] = []
    readers = set()

    def items() -> Iterator[int]:
        for number in range(5):
            read.append(number)
            readers.add(threading.current_thread())
            yield number

    with read_ahead(items()) as taken:
        assert read == []
        for number in range(5):
            assert next(taken) == number
            assert len(read) <= number + 2
            wait_until(lambda number=number: len(read) == min(number + 2, 5), "the next item was read")
        assert next(taken, None) is None
    assert len(readers) == 1
    assert threading.current_thread() not in readers
    assert threads() == []


def test_an_error_comes_in_its_turn() -> None:
    error = RuntimeFailure("row 3 holds NaN")

    def items() -> Iterator[int]:
        yield 1
        raise error

    with read_ahead(items()) as taken:
        assert next(taken) == 1
        with pytest.raises(RuntimeFailure) as raised:
            next(taken)
    assert raised.value is error
    assert threads() == []


def some(read: list[int]) -> Iterator[int]:
    for number in range(100):
        read.append(number)
        yield number


def test_whoever_leaves_early_takes_the_thread_with_him() -> None:
    read: list[int] = []

    def leave() -> None:
        with read_ahead(some(read)) as taken:
            raise ZeroDivisionError(next(taken))

    with read_ahead(some(read)) as taken:
        assert next(taken) == 0
    assert threads() == []
    assert len(read) <= 2
    read.clear()
    with pytest.raises(ZeroDivisionError):
        leave()
    assert threads() == []
    assert len(read) <= 2


def test_nothing_is_read_before_it_is_asked_for() -> None:
    read: list[int] = []
    with read_ahead(some(read)):
        assert len(threads()) == 1
    assert (read, threads()) == ([], [])


def test_an_interrupt_is_obeyed_while_an_item_is_waited_for() -> None:
    waits, asked = threading.Event(), threading.get_ident()

    def items() -> Iterator[int]:
        signal.pthread_kill(asked, signal.SIGUSR1)
        waits.wait()
        yield 1

    def take() -> None:
        with read_ahead(items()) as taken:
            try:
                next(taken)
            finally:
                waits.set()

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            take()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert threads() == []
