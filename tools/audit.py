"""Asks PyPI for known vulnerabilities of the pinned versions: ``python -m tools.audit``.

It ends with 0 only if PyPI knows each of them and nothing against any. pip-audit does the asking; what it could not
ask is told here in one sentence, as an index that only serves packages would have it say each version by itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.packaging.environments import INSTALL_SECONDS, ROOT

__all__ = ["main", "outcome"]

CONSTRAINTS: Final = ROOT / "constraints.txt"


def main() -> int:
    """Ask, and print what was answered; the exit code."""
    command: list[str | Path] = [
        Path(sys.executable).with_name("uv"), "tool", "run", "--quiet", "--constraints", CONSTRAINTS, "pip-audit",
        "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--requirement", CONSTRAINTS,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if not done.stdout.startswith("{"):
        print(f"pip-audit ended with {done.returncode}: {done.stderr.strip()[-2000:]}", file=sys.stderr)
        return 1
    report, failure = outcome(json.loads(done.stdout)["dependencies"])
    print(report)
    if failure:
        print(failure, file=sys.stderr)
    return 1 if failure else 0


def outcome(dependencies: list[dict[str, Any]]) -> tuple[str, str]:
    """What pip-audit's JSON says for people, a line for each vulnerability; and why that is a failure, if it is one."""
    unknown = [one for one in dependencies if "skip_reason" in one]
    vulnerable = [(one, vulnerability) for one in dependencies for vulnerability in one.get("vulns", ())]
    lines = [_line(one, vulnerability) for one, vulnerability in vulnerable]
    asked = f"{len(dependencies) - len(unknown)} of {len(dependencies)} pinned versions were asked about"
    lines.append(f"{asked}, {len(vulnerable)} vulnerabilities are known of these")
    failures = []
    if vulnerable:
        affected = sorted({one["name"] for one, _ in vulnerable})
        failures.append(f"raise in constraints.txt: {', '.join(affected)}")
    if unknown:
        names = ", ".join(one["name"] for one in unknown[:3]) + (", …" if len(unknown) > 3 else "")
        failures.append(
            f"nothing can be said about {len(unknown)} versions ({names}): PyPI's JSON API does not know them. If that "
            "is all of them, an index that only serves packages stands before PyPI: audit where PyPI itself is reached"
        )
    return "\n".join(lines), "; ".join(failures)


def _line(dependency: dict[str, Any], vulnerability: dict[str, Any]) -> str:
    fixed = ", ".join(vulnerability["fix_versions"]) or "nothing yet"
    names = ", ".join((vulnerability["id"], *vulnerability.get("aliases", ())))
    return f"{dependency['name']} {dependency['version']}: {names}, fixed in {fixed}"


if __name__ == "__main__":
    sys.exit(main())
