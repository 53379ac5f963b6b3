"""Reading the next micro-batch while the device computes on this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
_END: Any = object()


@contextmanager
def read_ahead(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """The same items in the same order, read by a thread that is one ahead of who takes them.

    An exception of the reading is raised where its item would have come. At the end of the block, however it ends, the
    thread ends too: it reads no further item, and one that is being read is waited for (a second ctrl-C does not).
    """
    wanted: SimpleQueue[bool] = SimpleQueue()
    found: SimpleQueue[tuple[T, BaseException | None]] = SimpleQueue()

    def read() -> None:
        given = iter(items)
        while wanted.get():
            try:
                found.put((next(given, _END), None))
            except BaseException as error:  # whatever it is, the thread that takes the items is to see it
                found.put((_END, error))

    def taken() -> Iterator[T]:
        wanted.put(True)
        while True:
            item, error = found.get()
            if error is not None:
                raise error
            if item is _END:
                return
            wanted.put(True)
            yield item

    thread = Thread(target=read, name="boost-compile-data", daemon=True)
    try:
        thread.start()
        yield taken()
    finally:
        wanted.put(False)
        if thread.is_alive():  # an interrupt may have come before it was
            thread.join()
