"""Tokens of a subject, and its bytes."""

from __future__ import annotations

import pytest

from turnout.subjects import SubjectTransform
from turnout.subjects.errors import InvalidSubjectError


def test_a_lone_surrogate_is_refused_where_bytes_are_needed() -> None:
    """It represents no byte, so no server could have sent it."""
    with pytest.raises(InvalidSubjectError, match="lone surrogate"):
        SubjectTransform.parse("*", "{{partition(3,1)}}").apply("\ud800")
