"""Objects as texts, for options of Spark's sources; only for texts of this application's own."""

from __future__ import annotations

import base64
import pickle
from typing import Any


def encoded(value: object) -> str:
    """Return an object as one text."""
    return base64.b64encode(pickle.dumps(value)).decode()


def decoded(text: str) -> Any:
    """Inverse of `encoded`."""
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - of the same application
