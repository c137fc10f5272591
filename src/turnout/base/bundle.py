"""Files beside the package in a checkout and inside it in a wheel: examples and benchmarks."""

from __future__ import annotations

from pathlib import Path


def bundled(name: str) -> Path:
    """Return the folder ``examples`` or ``benchmarks``.

    A checkout has precedence over the copy in a wheel, so that edited examples are run.
    """
    checkout = Path(__file__).resolve().parents[3]
    is_checkout = (checkout / "pyproject.toml").exists() and (checkout / name).is_dir()
    return checkout / name if is_checkout else Path(__file__).resolve().parents[1] / "_bundle" / name
