"""Writes a bill of materials for a wheel: ``python -m tools.sbom dist``.

It lists what ``turnout[all]`` installs with the pinned versions, with licences and with what needs what, in
CycloneDX's JSON. The packages are installed into a temporary environment, as their metadata is what is listed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.packaging.environments import ROOT, Environment, uv

__all__ = ["main"]


def main(folder: Path) -> Path:
    """Write ``turnout-VERSION.cdx.json`` beside the only wheel of *folder*; its path.

    Raises:
        SystemExit: there is not one wheel.
    """
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{folder} has {len(wheels)} wheels, expected one: make wheel")
    (wheel,) = wheels
    version = wheel.name.split("-")[1]
    bill = folder / f"turnout-{version}.cdx.json"
    pinned = ["--constraints", str(ROOT / "constraints.txt"), f"turnout[all] @ {wheel.resolve().as_uri()}"]
    with tempfile.TemporaryDirectory(prefix="turnout-sbom-") as work:
        environment = Environment.created(Path(work, "venv"), Path(sys.executable), pinned, wheel)
        uv(
            "tool", "run", "--constraints", ROOT / "constraints.txt", "--from", "cyclonedx-bom", "cyclonedx-py",
            "environment", environment.folder, "--pyproject", ROOT / "pyproject.toml", "--output-reproducible",
            "--output-file", bill,
        )  # fmt: skip
    document = json.loads(bill.read_text(encoding="utf-8"))
    # pyproject.toml has no version: it is that of a tag, and stands in the wheel.
    document["metadata"]["component"]["version"] = version
    bill.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return bill


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
