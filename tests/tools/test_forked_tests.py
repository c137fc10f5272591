"""Tests that are executed in forked processes are reported as those of one process are."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

MODULES = {
    "conftest.py": """
        import os, pytest

        @pytest.fixture(scope="session")
        def shared():
            yield os.getpid()
            print("the end of", os.getpid(), file=open(os.environ["ENDED"], "a"))
    """,
    "test_a.py": """
        import pytest

        def test_passes(shared, tmp_path):
            (tmp_path / "file").touch()

        def test_fails():
            print("said before")
            assert 1 + 1 == 3

        @pytest.mark.skip(reason="a reason")
        def test_is_skipped():
            pass
    """,
    "test_b.py": """
        import os

        def test_ends_its_process():
            os._exit(3)

        def test_never_begins():
            pass
    """,
    "test_c.py": """
        import warnings

        def test_warns(shared, tmp_path):
            (tmp_path / "file").touch()
            warnings.warn("a warning")
    """,
}


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / name).write_text("\n".join(line[8:] for line in text.splitlines()), encoding="utf-8")
    return folder


def run(folder: Path, *arguments: str) -> tuple[str, dict[str, str]]:
    """Return pytest's output and the outcome of each test in its report."""
    command = [sys.executable, "-m", "pytest", "-p", "tools.forked_tests", "-p", "no:cacheprovider", "-c", os.devnull]
    report = folder / "report.xml"
    done = subprocess.run(
        [*command, "--rootdir", str(folder), "--junit-xml", str(report), *arguments, str(folder)],
        cwd=REPOSITORY, env={**os.environ, "ENDED": str(folder / "ended"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    cases = ET.parse(report).getroot().iter("testcase")
    return done.stdout, {case.attrib["name"]: case[0].tag if len(case) else "passed" for case in cases}


def test_outcomes(modules: Path) -> None:
    """Each test has its outcome, also one whose process ends; what it printed and its warnings are shown."""
    output, outcomes = run(modules, "--processes", "3")

    assert outcomes == {
        "test_passes": "passed",
        "test_fails": "failure",
        "test_is_skipped": "skipped",
        "test_ends_its_process": "failure",
        "test_never_begins": "failure",
        "test_warns": "passed",
    }
    assert "3 failed, 2 passed, 1 skipped, 1 warning" in output
    assert "said before" in output
    assert "UserWarning: a warning" in output
    assert output.count("ended before this test did") >= 2
    # What processes share is made and ended once in each that uses it.
    assert 1 <= len((modules / "ended").read_text(encoding="utf-8").splitlines()) <= 2


def test_modules_that_share_a_fixture_of_their_package(modules: Path) -> None:
    """One process executes them all, so that the fixture is made once."""
    text = "import os\nimport pytest\n\n@pytest.fixture(scope='package')\ndef server():\n    yield os.getpid()\n"
    package = modules / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "conftest.py").write_text(text)
    seen = f"print(server, file=open({str(modules / 'ended')!r}, 'a'))"
    for number in range(6):
        (package / f"test_{number}.py").write_text(
            f"import time\n\ndef test_it(server):\n    time.sleep(0.05)\n    {seen}\n"
        )

    run(package, "--processes", "3")

    pids = (modules / "ended").read_text(encoding="utf-8").splitlines()
    assert (len(pids), len({*pids})) == (6, 1)


def test_sessions_are_in_a_third_of_the_processes(modules: Path) -> None:
    """Modules with a mark of a session share few processes, the others take all."""
    for name in MODULES:
        (modules / name).unlink()
    seen = f"print(os.getpid(), file=open({str(modules)!r} + '/%s', 'a'))"
    body = f"import os, time, pytest\n\n%s\ndef test_it():\n    time.sleep(0.1)\n    {seen}\n"
    for number in range(12):
        (modules / f"test_s{number}.py").write_text(body % ("@pytest.mark.session", "sessions"))
        (modules / f"test_o{number}.py").write_text(body % ("", "others"))

    _, outcomes = run(modules, "--processes", "4", "-W", "ignore")

    sessions, others = ((modules / name).read_text(encoding="utf-8").splitlines() for name in ("sessions", "others"))
    assert (set(outcomes.values()), len(sessions), len(others)) == ({"passed"}, 12, 12)
    assert 1 <= len({*sessions}) <= 2


def test_the_first_failure_ends_the_run(modules: Path) -> None:
    """With ``-x`` no process takes another module, and pytest says why it stops."""
    (modules / "test_b.py").unlink()
    for number in range(200):
        (modules / f"test_d{number}.py").write_text("import time\n\ndef test_it():\n    time.sleep(0.05)\n")

    output, outcomes = run(modules, "--processes", "2", "-x")

    assert "stopping after 1 failures" in output
    assert len(outcomes) < 200


def test_processor_time(modules: Path) -> None:
    """What a process uses that a test's own process leaves behind counts for the test's module."""
    (modules / "test_b.py").unlink()
    burn = "import sys, time, pathlib\nwhile time.process_time() < 0.5: pass\npathlib.Path(sys.argv[1]).touch()"
    (modules / "test_d.py").write_text(f"""
import subprocess, sys, time

def test_burns(tmp_path):
    leave = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]])"
    subprocess.run([sys.executable, "-c", leave, {burn!r}, str(tmp_path / "ended")], check=True)
    while not (tmp_path / "ended").exists():
        time.sleep(0.01)
""")

    output, outcomes = run(modules, "--processor-time")

    used = {line.split()[-1]: float(line.split()[0]) for line in output.splitlines() if "of processor time: " in line}
    assert outcomes["test_burns"] == "passed"
    assert used["test_d.py"] >= 0.5
    assert used["test_a.py"] < used["test_d.py"]
