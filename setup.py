"""Build steps beyond pyproject.toml: files bundled from outside the package, and the page for a package index."""

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
PICTURE = re.compile(r"^```mermaid\n.*?^```\n\n?|^!\[[^\]]*\]\([^)]*\)\n\n?", re.DOTALL | re.MULTILINE)
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)]+)\)")


class BuildWithBundle(build_py):
    """Copy examples and benchmarks to ``turnout/_bundle``, with the layout of a checkout."""

    def run(self) -> None:
        """Build the package, and the bundle if it is not an editable install, which has the checkout."""
        super().run()
        if self.editable_mode:
            return
        for folder in ("examples", "benchmarks"):
            target = Path(self.build_lib) / "turnout" / "_bundle" / folder
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(HERE / folder, target, ignore=shutil.ignore_patterns("__pycache__", ".*", "results"))


def page() -> str:
    """Return README.md for a package index: without pictures, and without relative links.

    Links become absolute if pyproject.toml names the repository (``[project.urls]``, ``Source``), plain text otherwise.
    """
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = project.get("urls", {}).get("Source")
    link = rf"[\1]({source}/blob/main/\2)" if source else r"\1"
    return RELATIVE_LINK.sub(link, PICTURE.sub("", (HERE / "README.md").read_text(encoding="utf-8")))


setup(
    cmdclass={"build_py": BuildWithBundle},
    long_description=page(),
    long_description_content_type="text/markdown",
)
