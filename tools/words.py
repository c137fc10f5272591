"""Check the words of the sources: docstring openers, headings, phrases, banned identifiers and commit subjects.

``python -m tools.words`` prints one line per finding and exits with 1 if there are any; with the file of a commit's
message (as in a ``commit-msg`` hook) it checks this subject only. The rules and their exceptions, each with its reason,
are in ``tools/words.toml``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tools.phrases import PhraseFinding, Phrases

ROOT = Path(__file__).parents[1]
RULES = ROOT / "tools" / "words.toml"
_SOURCES = ROOT / "src" / "turnout"
_PAGES = (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "cookbook").glob("*.md"), *ROOT.glob("*.md"))
_TEXTS = ("*.html", "*.js", "*.proto")
"""Files below the sources, beside the modules, that are checked for phrases."""
_PHRASED_PAGES = tuple(page for page in _PAGES if page.name not in {"CHANGELOG.md", "CODE_OF_CONDUCT.md"})
"""Pages that are checked for phrases: not the entries of past changes, nor the page on people."""
_KINDS = "feat|fix|docs|test|refactor|perf|build|ci|bench|style|chore|revert"
_SUBJECT = re.compile(rf"(?:{_KINDS})(?:\([\w,/ -]+\))?!?: \S")
_MAX_SUBJECT_LETTERS = 72
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of one check.

    Attributes:
        openers: words that no docstring and no heading of the documentation begins with.
        identifiers: banned name → the word to use instead.
        exceptions: ``path:name`` → the reason for the exception.
        phrases: phrases that no text has, with their own exceptions.
    """

    openers: frozenset[str]
    identifiers: dict[str, str]
    exceptions: dict[str, str]
    phrases: Phrases = field(default_factory=lambda: Phrases({}, {}))

    @classmethod
    def read(cls, file: Path = RULES) -> Rules:
        """Read the rules.

        Raises:
            KeyError: a section is missing.
        """
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        phrases = Phrases(table["phrases"], table["phrase_exceptions"])
        return cls(frozenset(table["openers"]), table["identifiers"], table["exceptions"], phrases)


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def check_source(path: str, source: str, rules: Rules) -> Iterator[Finding]:
    """Yield the findings of one module; *path* is shown and looked up in the exceptions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _Documented):
            yield from _docstring(path, node, rules)
        yield from _attribute_texts(path, node, rules)
        yield from (
            Finding(path, line, f"{name!r} is not a word of the field: use {rules.identifiers[name]}")
            for name, line in _names(node)
            if name in rules.identifiers and f"{path}:{name}" not in rules.exceptions
        )
    yield from _phrases(path, rules.phrases.in_source(path, source))


def _phrases(path: str, found: Iterator[PhraseFinding]) -> Iterator[Finding]:
    yield from (Finding(path, line, f"{text!r}: write {instead}") for line, text, instead in found)


def _docstring(path: str, node: _Documented, rules: Rules) -> Iterator[Finding]:
    text = ast.get_docstring(node)
    name = getattr(node, "name", "module")
    opener = re.match(r"\w+", text or "")
    if opener and opener[0] in rules.openers and f"{path}:{name}" not in rules.exceptions:
        line = getattr(node, "lineno", 1)
        yield Finding(path, line, f"the docstring of {name} begins with {opener[0]!r}: use a verb or a noun phrase")


def _attribute_texts(path: str, node: ast.AST, rules: Rules) -> Iterator[Finding]:
    """Yield the findings of the texts under the assignments in a body."""
    body = getattr(node, "body", None)
    for assignment, text in pairwise(body if isinstance(body, list) else ()):
        match assignment, text:
            case ast.Assign() | ast.AnnAssign(), ast.Expr(ast.Constant(str(words))):
                opener = re.match(r"\w+", words)
                if opener and opener[0] in rules.openers:
                    yield Finding(
                        path, text.lineno, f"the text of a constant begins with {opener[0]!r}: use a noun phrase"
                    )


def check_page(path: str, text: str, rules: Rules) -> Iterator[Finding]:
    """Yield the headings of a page of the documentation that begin with one of the openers."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        opener = None if fenced else re.match(r"#+ (\w+)", line)
        if opener and opener[1] in rules.openers:
            yield Finding(path, number, f"the heading begins with {opener[1]!r}: name the subject")


def _names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a node binds, with their lines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node.lineno
        case ast.arg():
            yield node.arg, node.lineno
        case ast.Name(ctx=ast.Store()):
            yield node.id, node.lineno


def check_subject(subject: str) -> str:
    """Return the fault of a commit's subject, empty if there is none.

    >>> check_subject("fix(spark): keep rows with a null key")
    ''
    >>> check_subject("fix(spark): keep rows with a null key.")
    'ends with a full stop'
    """
    if len(subject) > _MAX_SUBJECT_LETTERS:
        return f"has {len(subject)} letters, at most {_MAX_SUBJECT_LETTERS} are allowed"
    if subject.endswith("."):
        return "ends with a full stop"
    return "" if _SUBJECT.match(subject) else "is not a Conventional Commit (feat(scope): subject)"


def _commit_findings() -> Iterator[Finding]:
    """Yield the faults of the commits since the newest tag, or of the last 40 if there is no tag."""
    git = ["git", "-C", str(ROOT)]
    tag = subprocess.run([*git, "describe", "--tags", "--abbrev=0"], capture_output=True, text=True, check=False)
    span = ["-40"] if tag.returncode else [f"{tag.stdout.strip()}..HEAD"]
    log = subprocess.run(
        [*git, "log", "--no-merges", "--format=%h %s", *span], capture_output=True, text=True, check=False
    )
    for number, line in enumerate(log.stdout.splitlines(), 1):
        commit, _, subject = line.partition(" ")
        if fault := check_subject(subject):
            yield Finding(f"commit {commit}", number, f"the subject {fault}: {subject}")


def findings(rules: Rules, sources: Path = _SOURCES) -> Iterator[Finding]:
    """Yield every finding in the modules below *sources*, except generated code, and in the documentation."""
    for file in sorted(sources.rglob("*.py")):
        if "_pb2" not in file.name and file.name != "_built.py":
            path = file.relative_to(sources.parent).as_posix()
            yield from check_source(path, file.read_text(encoding="utf-8"), rules)
    for file in sorted(file for pattern in _TEXTS for file in sources.rglob(pattern)):
        path = file.relative_to(sources.parent).as_posix()
        yield from _phrases(path, rules.phrases.in_text(path, file.read_text(encoding="utf-8")))
    for page in _PHRASED_PAGES:
        path = page.relative_to(ROOT).as_posix()
        yield from _phrases(path, rules.phrases.in_text(path, page.read_text(encoding="utf-8")))
    for page in _PAGES:
        yield from check_page(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"), rules)


def _message_findings(file: Path) -> Iterator[Finding]:
    """Yield the fault of the subject of a commit's message; what git itself writes for a merge is left alone."""
    subject = file.read_text(encoding="utf-8").partition("\n")[0]
    if not subject.startswith("Merge ") and (fault := check_subject(subject)):
        yield Finding(file.name, 1, f"the subject {fault}: {subject}")


def main(arguments: list[str]) -> int:
    """Print the findings and return the exit code."""
    found = [*_message_findings(Path(arguments[0]))] if arguments else [*findings(Rules.read()), *_commit_findings()]
    for finding in found:
        print(finding)
    print(f"{len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
