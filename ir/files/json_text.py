"""JSON text of documents with values that JSON does not have: numbers that are not finite, arrays, sets."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(document: Any, indent: int | None = 2) -> str:
    """One JSON document, indented, or on one line without ``indent``."""
    return json.dumps(_finite(document), indent=indent, ensure_ascii=False, allow_nan=False, default=plain) + "\n"


def _finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def plain(value: Any) -> Any:
    """The JSON form of a value whose type JSON does not have."""
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
