"""Handling of pip-audit's answers by `make audit`."""

from __future__ import annotations

from typing import Any

from tools.audit import outcome

SOUND: dict[str, Any] = {"name": "numpy", "version": "2.4.6", "vulns": []}
UNKNOWN: dict[str, Any] = {
    "name": "rich",
    "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15.0.0)",
}
VULNERABLE: dict[str, Any] = {
    "name": "jinja2",
    "version": "3.1.4",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.5"], "aliases": ["CVE-1"], "description": "…"}],
}


def test_all_is_sound() -> None:
    """No failure, and the number of versions that this was said of."""
    assert outcome([SOUND]) == ("1 of 1 pinned versions were asked about, 0 vulnerabilities are known of these", "")


def test_one_is_vulnerable() -> None:
    """It is reported with its version, its names and the fixed version."""
    report, failure = outcome([SOUND, VULNERABLE])

    assert report.splitlines()[0] == "jinja2 3.1.4: PYSEC-1, CVE-1, fixed in 3.1.5"
    assert failure == "raise in constraints.txt: jinja2"


def test_an_index_that_knows_of_none() -> None:
    """A failed query is an error with its reason."""
    report, failure = outcome([UNKNOWN] * 4)

    assert report == "0 of 4 pinned versions were asked about, 0 vulnerabilities are known of these"
    assert failure.startswith("nothing can be said about 4 versions (rich, rich, rich, …): PyPI's JSON API does not")
    assert failure.endswith("audit where PyPI itself is reached")


def test_both() -> None:
    """A version that nothing is known of does not hide another one's vulnerability."""
    _, failure = outcome([UNKNOWN, VULNERABLE])

    assert failure.startswith("raise in constraints.txt: jinja2; nothing can be said about 1 versions (rich): ")
