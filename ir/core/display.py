"""How objects show themselves in a notebook. What draws them stands far above them, so it is handed in from there:
``boost_compile`` does it, and nothing is loaded before something is to be shown."""

from __future__ import annotations

from collections.abc import Callable

_render: Callable[[object], str] | None = None


def render_with(render: Callable[[object], str]) -> None:
    """From now on objects show themselves as the HTML that ``render`` makes of them."""
    global _render
    _render = render


class Displayed:
    """Base of what has a picture of its own in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return None if _render is None else _render(self)
