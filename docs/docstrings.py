"""Docstrings as the pages show them."""

from __future__ import annotations

import re


def in_markdown(text: str) -> str:
    """Docstrings mark code by double backquotes and refer by roles, of which the last name is shown."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda m: f"`{m[1].lstrip('.').rsplit('.', 1)[-1]}`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)
