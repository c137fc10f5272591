"""``python -m tests.vectors KIND FILE…``: run vector files through every implementation there is.

A kind is a module beside this one (``subject-transform`` is ``subject_transform.py``) that offers
``run(path) -> Iterable[Outcome]``.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path

from tests.vectors.outcome import Outcome

KINDS = ("subject-transform", "subject-match", "mappings", "jsack", "connect")


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0] not in KINDS:
        sys.stderr.write(f"usage: python -m tests.vectors {{{','.join(KINDS)}}} FILE...\n")
        return 2
    kind, *files = arguments
    missing = [name for name in files if not Path(name).is_file()]
    if missing:
        sys.stderr.write(f"no such file: {', '.join(missing)}\n")
        return 2
    runner = importlib.import_module(f"tests.vectors.{kind.replace('-', '_')}")
    outcomes: list[Outcome] = [outcome for name in files for outcome in runner.run(Path(name))]
    for outcome in outcomes:
        if outcome.status == "failed":
            print(f"FAILED [{outcome.implementation}] {outcome.name}: {outcome.reason}")
    reasons = Counter(outcome.reason for outcome in outcomes if outcome.status == "unsupported")
    for reason, count in reasons.most_common():
        print(f"unsupported x{count}: {reason}")
    counts = Counter(outcome.status for outcome in outcomes)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['unsupported']} unsupported")
    return 1 if counts["failed"] or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
