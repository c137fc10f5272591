"""The sizes of a tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.sizes import FORMS, MOST, MOST_LINES, Forms, alike, measure, missing_names, too_long, too_much


@pytest.mark.parametrize(
    ("statement", "percent"),
    [
        ("from src.d import x", 50),
        ("from src import d", 50),
        ("from src import (\n    c,\n    d,\n)", 50),
        ("import src.d", 50),
        ("def test():\n    from src.d import x", 50),
        ("from src import e", 100),
    ],
)
def test_modules_that_tests_of_other_folders_import_lack_a_mirror(tmp_path: Path, statement: str, percent: int) -> None:
    """Every form of import counts, in any folder."""
    sources, tests = tmp_path / "src", tmp_path / "tests"
    sources.mkdir()
    (sources / "c.py").write_text("")
    (sources / "d.py").write_text("def f():\n    return 1\n")
    (tests / "other").mkdir(parents=True)
    (tests / "test_c.py").write_text("")
    (tests / "other" / "test_more.py").write_text(statement)

    assert measure(sources, tests)["of_modules_that_tests_import"] == percent


def test_a_tree_is_measured(tmp_path: Path) -> None:
    """Modules and lines by package, uses of Any, and the share of modules whose tests mirror them."""
    sources, tests = tmp_path / "src", tmp_path / "tests"
    (sources / "a").mkdir(parents=True)
    (sources / "a" / "__init__.py").write_text("")
    (sources / "a" / "b.py").write_text('"""A."""\nx: Any = 1\n\n\ndef f():\n    # One.\n    """F."""\n    return 1\n')
    (sources / "c.py").write_text("y = 1\n")
    (tests / "a").mkdir(parents=True)
    (tests / "a" / "test_b.py").write_text("")

    figures = measure(sources, tests)

    assert (figures["modules"], figures["lines"], figures["code_lines"], figures["any"]) == (3, 9, 4, 1)
    assert figures["packages"] == {
        "(top)": {"modules": 1, "lines": 1, "code_lines": 1},
        "a": {"modules": 2, "lines": 8, "code_lines": 3},
    }
    assert (figures["longest_function_lines"], figures["mirrored_tests_percent"]) == (4, 50)


def test_a_long_module_is_a_finding(tmp_path: Path) -> None:
    """A module of more lines than the limit is named with its length; generated code is not looked at."""
    (tmp_path / "a.py").write_text("x = 1\n" * MOST_LINES)
    (tmp_path / "b.py").write_text("x = 1\n" * (MOST_LINES + 1))
    (tmp_path / "c_pb2.py").write_text("x = 1\n" * (MOST_LINES + 1))

    assert too_long(tmp_path) == [f"{tmp_path / 'b.py'}: {MOST_LINES + 1} lines, more than {MOST_LINES}"]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("caller", "calls"), True),
        (("mapper", "mapping"), True),
        (("_published", "publisher"), True),
        (("mapper", "mapping_table"), False),
        (("call", "a/calls"), False),
    ],
)
def test_names_that_differ_by_an_ending(tmp_path: Path, names: tuple[str, str], found: bool) -> None:
    """They are found in one package, not in two."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text("")

    assert bool(alike(tmp_path)) == found


def test_a_package_that_grew_is_a_finding() -> None:
    """The figure and its limit are named."""
    grown = {name: most + (name == "modules") for name, most in MOST.items()}

    assert too_much(dict(MOST)) == []
    assert too_much(grown) == [
        f"{MOST['modules'] + 1:,} modules, more than {MOST['modules']:,}: make room, or raise tools.sizes.MOST"
    ]


def test_every_form_exists() -> None:
    """Forms that are renamed or deleted are renamed in the list; one that is not there is a finding."""
    assert missing_names(FORMS) == []
    assert missing_names([Forms("read", "nats.protocol.headers:parse_all", "")]) == [
        "read: turnout.nats.protocol.headers has no parse_all"
    ]
