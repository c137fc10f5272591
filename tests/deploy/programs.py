"""Programs that look at what deploy/ has, built once from their Go modules into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

HELM: Final = ("helm", "helm.sh/helm/v3/cmd/helm", "v3.22.0")
KUBECONFORM: Final = ("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
SECONDS: Final = 1_500
"""Helm has a thousand packages to compile."""


class NotAvailable(Exception):
    """There is no such program here; the message says why and how to get it."""


def program(name: str, package: str, version: str) -> Path:
    """The built program.

    Raises:
        NotAvailable: it can be neither found nor built.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnout" / "bin"
    kept = cache / f"{name}-{version}"
    if kept.exists():
        return kept
    go = shutil.which("go")
    if go is None:
        raise NotAvailable(f"no Go toolchain was found: install Go to build {name} for these tests")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [go, "install", f"{package}@{version}"], env={**os.environ, "GOBIN": folder},
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        if done.returncode:
            raise NotAvailable(f"{name} {version} could not be built: {done.stderr.strip().splitlines()[-1:]}")
        # In one step, so that two test runs do not see half of it.
        Path(shutil.copy(Path(folder, name), cache / f"{kept.name}.{os.getpid()}")).replace(kept)
    return kept
