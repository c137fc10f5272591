"""What became of one vector in one implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["passed", "failed", "unsupported"]


@dataclass(frozen=True)
class Outcome:
    """*reason* says why it failed, or which reviewed reason makes it unsupported."""

    name: str
    implementation: str
    status: Status
    reason: str = ""
