"""Results as JSON: for programs, and for the scripts of a page."""

from __future__ import annotations

import json
import math
from typing import Any


def plain_data(value: Any) -> Any:
    """Plain data for JSON, which has no infinity and no NaN: both become null."""
    if isinstance(value, dict):
        return {key: plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_in_html(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
