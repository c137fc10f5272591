from __future__ import annotations

from pathlib import Path

import pytest
from tools.maven import CONNECTOR, kafka_properties, resolve_jars

from turnout.errors import TurnoutError


def test_what_maven_cannot_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Maven Spark fetches the connector; with it, Maven's error is reported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))

    assert kafka_properties() == {"spark.jars.packages": CONNECTOR}
    with pytest.raises(TurnoutError, match="Maven is not installed"):
        resolve_jars(["a:b:1"])

    maven = tools / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] no such artifact'\nexit 1\n", encoding="utf-8")
    maven.chmod(0o755)
    with pytest.raises(TurnoutError, match=r"could not fetch a:b:1: no such artifact"):
        resolve_jars(["a:b:1"])
