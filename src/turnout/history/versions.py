"""Versions of a route file: the file in its folder, and its content at a revision of git."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from turnout.errors import ConfigError, Mistake, RouteError
from turnout.routes import Route
from turnout.subscriptions import open_store
from turnout.subscriptions.lines import import_lines
from turnout.subscriptions.store_url import resolved


@dataclass(frozen=True, slots=True)
class Version:
    """Named version of a route.

    Attributes:
        name: name of the version.
        route: the route.
    """

    name: str
    route: Route

    def with_subscriptions(self, store: str) -> Version:
        """Return the version with the subscriptions of another store.

        Raises:
            ConfigError: the route has no subscriptions.
        """
        part = self.route.subscriptions
        if part is None:
            raise ConfigError([Mistake(self.name, "the route has no subscriptions, so there are none to exchange")])
        return replace(self, route=replace(self.route, subscriptions=part.model_copy(update={"store": store})))


def load_versions(written: Sequence[str], revisions: str | None, resources: ExitStack) -> tuple[Version, Version]:
    """Return the old version and the new one, as the command line names them.

    Args:
        written: one or two versions, see `load_version`; one is both.
        revisions: ``REV1..REV2``, two revisions of the one file that is *written*; an empty one is HEAD.
        resources: removes the files extracted from git at its end.

    Raises:
        ConfigError: a revision, or a file in it, does not exist; or there are too many versions.
        RouteError: a version is no route.
        FileNotFoundError: a file does not exist.
    """
    if revisions is not None:
        before, dots, after = revisions.partition("..")
        if not dots or len(written) != 1:
            raise ConfigError([Mistake("--git", f"expected REV1..REV2 and one file, found {revisions!r}")])
        file = Path(written[0])
        old, new = (_of_revision(revision or "HEAD", file.name, file.parent, resources) for revision in (before, after))
        return old, new
    if not 1 <= len(written) <= 2:
        raise ConfigError([Mistake("versions", f"expected an old and a new one, found {len(written)}")])
    versions = [load_version(reference, resources) for reference in written]
    return versions[0], versions[-1]


def load_version(written: str, resources: ExitStack) -> Version:
    """A version by its name: a file, or ``REV:path`` as git writes it, from the top of the repository or with ``./``.

    Raises:
        ConfigError: the revision, or the file in it, does not exist.
        RouteError: the version is no route.
        FileNotFoundError: the file does not exist.
    """
    revision, colon, path = written.partition(":")
    if not colon or Path(written).exists():
        return _settled(written, Route.load(written))
    is_relative = path.startswith(("./", "../"))
    return _of_revision(revision, path, Path() if is_relative else _top(Path()), resources)


def snapshot_store(address: str, resources: ExitStack) -> str:
    """Return the URL of a store with the given subscriptions.

    Args:
        address: the URL of a store, or a file of lines as ``turnout subscriptions export`` writes them.
        resources: removes the files made from the lines at its end.

    Raises:
        SubscriptionInvalidError: a line cannot be read.
        FileNotFoundError: the file does not exist.
    """
    if "://" in address:
        return resolved(address)
    folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="turnout-subscriptions-")))
    url = f"sqlite:///{quote(str(folder / 'subscriptions.db'))}"
    # The file is temporary, like its folder: it need not survive a power loss.
    with closing(open_store(f"{url}?synchronous=off")) as store, Path(address).open("rb") as lines:
        import_lines(store, lines)
    return url


def _settled(name: str, route: Route) -> Version:
    """Return a version whose store path is resolved, so that equal files have equal names."""
    version = Version(name, route)
    return version if route.subscriptions is None else version.with_subscriptions(resolved(route.subscriptions.store))


def _of_revision(revision: str, path: str, folder: Path, resources: ExitStack) -> Version:
    """Return a route file as it was, among the files of its revision.

    Files that are not in the revision, as a store of subscriptions or a certificate, are the current ones.
    """
    top = _top(folder)
    whole = folder.resolve() / path
    relative = Path(os.path.relpath(whole, top))
    if relative.parts[:1] == ("..",):
        raise ConfigError([Mistake(f"{revision}:{path}", f"is outside of the repository {top}")])
    name = f"{revision}:{relative.as_posix()}"
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not commit:
        raise ConfigError([Mistake(name, f"git knows no revision {revision!r}")])
    tree = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="turnout-version-")))
    _check_out(top, commit, tree)
    file = tree / relative
    if not file.is_file():
        raise ConfigError([Mistake(name, "the revision has no such file")])
    _link_missing(top / relative.parent, file.parent)
    try:
        return _settled(name, Route.load(file))
    except RouteError as wrong:
        raise RouteError(wrong.mistakes, what=f"{name} cannot be used") from wrong


def _top(folder: Path) -> Path:
    """Return the top folder of the repository that contains a folder."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise ConfigError([Mistake(str(folder), "is in no repository of git")])
    return Path(top).resolve()


def _check_out(top: Path, commit: str, tree: Path) -> None:
    """Write the files of a commit into a folder; the repository, its index included, is unchanged."""
    index = {"GIT_INDEX_FILE": str(tree / ".index")}
    for arguments in (("read-tree", commit), ("checkout-index", "--all", f"--prefix={tree}/")):
        if _git(top, *arguments, **index) is None:
            raise ConfigError([Mistake("git", f"cannot check {commit} out of {top}")])


def _link_missing(now: Path, former: Path) -> None:
    if not now.is_dir():
        return
    for entry in now.iterdir():
        if entry.name != ".git" and not os.path.lexists(former / entry.name):
            (former / entry.name).symlink_to(entry)


def _git(folder: Path, *arguments: str, **environment: str) -> str | None:
    """Run git and return its output; None if it fails."""
    git = shutil.which("git")
    if git is None:
        raise ConfigError([Mistake("git", "is not installed, or not on PATH")])
    done = subprocess.run(
        [git, *arguments], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None


_SECONDS = 30
"""Seconds that one call of git may take."""


def versions_of(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the commits that changed a file, the latest first, and what each has in it.

    Raises:
        ConfigError: there is no git, or the file is in no repository.
    """
    git = shutil.which("git")
    if git is None:
        raise ConfigError([Mistake("git", "there is no program git")])
    name = f"./{file.name}"
    log = _git_output(git, file.parent, "log", "--format=%H", "--", name)
    if log is None:
        raise ConfigError([Mistake("git", f"{str(file)!r} is in no git repository")])
    for commit in log.decode().split():
        content = _git_output(git, file.parent, "show", f"{commit}:{name}")
        if content is not None:
            yield commit, content


def _git_output(git: str, folder: Path, *arguments: str) -> bytes | None:
    process = subprocess.run([git, *arguments], cwd=folder, capture_output=True, timeout=_SECONDS, check=False)
    return process.stdout if process.returncode == 0 else None
