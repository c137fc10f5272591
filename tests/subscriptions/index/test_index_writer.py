"""An index folder follows its store; readers open any of the latest revisions, and get errors for damage."""

from __future__ import annotations

import gc
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from tests.examples import examples
from tests.subscriptions.index.asking import expected, pairs, wanting
from turnout.conditions import all_of, any_of, kiwi
from turnout.errors import StoreUnavailableError
from turnout.subscriptions import Changes, Subscription
from turnout.subscriptions.index import Index, IndexFileError, IndexFolder, index_writer
from turnout.subscriptions.index.flat_messages import Column
from turnout.subscriptions.stores.memory import MemoryStore


def opened(index_folder):
    """The index of the folder's latest revision."""
    return Index.open(index_folder.folder, index_folder.refresh())


def matching_ids(index, value):
    """The ids of the subscriptions that want a value."""
    return [id_ for _, id_ in pairs(index, [{"k": value}])]


def test_follows_its_store(store, index_folder):
    """Created subscriptions are found and deleted ones are not, from the next refresh on; old revisions are kept."""
    first = store.create(wanting("a"))
    before = opened(index_folder)
    second = store.create(wanting("a"))
    store.delete(first)
    after = opened(index_folder)

    assert (matching_ids(before, "a"), matching_ids(after, "a")) == ([first], [second])
    assert (len(before), len(after), len(index_folder)) == (1, 1, 1)
    assert matching_ids(Index.open(index_folder.folder, before.revision), "a") == [first]
    assert store.revision() == after.revision


def test_nothing_new_costs_nothing(store, index_folder):
    """A refresh without changes writes no file."""
    store.create(wanting("a"))
    revision = index_folder.refresh()
    files = sorted(index_folder.folder.iterdir())

    assert index_folder.refresh() == revision
    assert sorted(index_folder.folder.iterdir()) == files


def test_what_came_and_went(store, index_folder):
    """A revision that changes nothing can be opened too."""
    store.delete(store.create(wanting("a")))

    assert matching_ids(opened(index_folder), "a") == []


@settings(max_examples=examples(60))
@given(st.data())
def test_any_history_ends_in_the_same_index(tmp_path_factory, data):
    """After any changes, refreshes and merges, the folder's index finds what the interpreter says of the store."""
    store = MemoryStore()
    place = tmp_path_factory.mktemp("history")
    with pytest.MonkeyPatch.context() as patch, IndexFolder(place / "index", store) as index_folder:
        patch.setattr(index_writer, "LAYERS", 2)
        patch.setattr(index_writer, "_MIN_MERGE", data.draw(st.sampled_from([3, 1_000])))
        for _ in range(data.draw(st.integers(1, 6))):
            drawn = data.draw(st.lists(conditions, max_size=4))
            store.create_many(Subscription(["d"], condition) for condition in drawn)
            present = [subscription.id for subscription in store.snapshot()]
            for gone in data.draw(st.lists(st.sampled_from(present), unique=True, max_size=3)) if present else ():
                store.delete(gone)
            present = [subscription.id for subscription in store.snapshot()]
            for changed in data.draw(st.lists(st.sampled_from(present), unique=True, max_size=3)) if present else ():
                store.update(changed, Subscription(["d"], data.draw(conditions)))
            if data.draw(st.booleans()):
                index_folder.refresh()
            if data.draw(st.booleans()):
                index_folder.settle()
        given_messages = data.draw(st.lists(messages, min_size=1, max_size=4))

        assert expected(store.snapshot(), given_messages) == pairs(opened(index_folder), given_messages)
        assert len(store.snapshot()) == len(index_folder)


def test_layers_are_merged(store, index_folder):
    """Many small changes become one layer in the background, and a reader of the layers continues."""
    ids = []
    for n in range(index_writer.LAYERS + 1):
        ids.append(store.create(wanting(f"v{n}")))
        reader = opened(index_folder)
    store.delete(ids[0])
    index_folder.settle()
    merged = opened(index_folder)

    assert len(merged._layers) < index_writer.LAYERS + 1
    assert [matching_ids(reader, f"v{n}") for n in range(3)] == [[ids[0]], [ids[1]], [ids[2]]]
    assert [matching_ids(merged, f"v{n}") for n in range(3)] == [[], [ids[1]], [ids[2]]]


def test_the_base_is_built_anew(store, index_folder, monkeypatch):
    """When much has changed, there is one segment again, and nothing is gone from it."""
    monkeypatch.setattr(index_writer, "_MIN_MERGE", 10)
    ids = store.create_many(wanting(f"v{n}") for n in range(30))
    store.delete(ids[3])
    index_folder.refresh()
    last = store.create(wanting("last"))
    index_folder.settle()
    index = opened(index_folder)

    assert (matching_ids(index, "v3"), matching_ids(index, "v4"), matching_ids(index, "last")) == ([], [ids[4]], [last])
    index_folder.settle()
    assert len(index) == 30


def test_a_store_that_forgot_its_past(index_folder, monkeypatch):
    """A store that starts over is indexed from the beginning."""
    new = wanting("new", "n1")
    monkeypatch.setattr(index_folder, "_store", Forgetful(Changes(7, (new,), (), reset=True)))

    assert (index_folder.refresh(), matching_ids(Index.open(index_folder.folder, 7), "new")) == (7, ["n1"])


class Forgetful:
    def __init__(self, changes):
        self._changes = changes

    def changes(self, since):
        return self._changes if since < self._changes.revision else Changes(since)


def test_a_store_that_is_away(store, index_folder, monkeypatch):
    """While the store is unavailable a refresh reports this, and the previous revision can be opened."""
    created = store.create(wanting("a"))
    revision = index_folder.refresh()

    def away(_since):
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "changes", away)
        with pytest.raises(StoreUnavailableError):
            index_folder.refresh()

    assert matching_ids(Index.open(index_folder.folder, revision), "a") == [created]
    assert index_folder.refresh() == revision


def test_learns(store, index_folder):
    """After a sample, subscriptions are looked up by what is rare in it, and the answers are the same."""
    created = store.create(Subscription(["d"], all_of(kiwi("kind", "rare"), kiwi("k", "a"))))
    index_folder.refresh()
    index_folder.learn([{"kind": "usual", "k": "a"}] * 10)
    index = opened(index_folder)

    assert [index.revision, *pairs(index, [{"kind": "rare", "k": "a"}])] == [store.revision(), (0, created)]
    ((layer, _),) = index._layers
    assert [layer.segment.head.facts[fact][0] for fact in layer.segment.head.probed] == ["kind"]


def test_files_are_private_and_go(tmp_path, store):
    """The folder and its files are readable by their owner only, and closing removes them."""
    place = tmp_path / "index"
    ids = store.create_many(wanting(f"v{n}") for n in range(3))
    index_folder = IndexFolder(place, store)
    store.delete(ids[0])
    reader = opened(index_folder)

    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    index_folder.close()
    assert not place.exists()
    assert matching_ids(reader, "v1") == [ids[1]]
    index_folder.close()


def test_old_revisions_go(store, index_folder, monkeypatch):
    """Only the latest revisions are kept, with their files."""
    monkeypatch.setattr(index_writer, "KEPT", 2)
    first = index_folder.refresh()
    for n in range(12):
        store.create(wanting(f"v{n}"))
        latest = index_folder.refresh()
        index_folder.settle()
    needed = {path for revision in (latest - 1, latest) for path in index_folder.files(revision)}

    assert needed == {path for path in index_folder.folder.iterdir() if path.name != "writer.lock"}
    with pytest.raises(IndexFileError, match=f"revision-{first}.json"):
        index_folder.files(first)


def test_leftovers_of_a_killed_writer_go(tmp_path, store):
    """A writer that was killed leaves files; the next one in the folder removes them and nothing else."""
    program = (
        "import os, sys, signal; from pathlib import Path\n"
        "from turnout.subscriptions.index import IndexFolder\n"
        "from turnout.subscriptions.stores.memory import MemoryStore\n"
        "kept = IndexFolder(Path(sys.argv[1]), MemoryStore()); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    (tmp_path / "mine.txt").write_text("stays")
    (tmp_path / "segment-77.index.123.tmp").write_text("half written")
    with IndexFolder(tmp_path, store):
        names = sorted(path.name for path in tmp_path.iterdir())

    assert names == ["mine.txt", "revision-0.json", "segment-1.index", "writer.lock"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_one_writer(store, index_folder):
    """A second writer of a folder is refused, and the first one continues."""
    with pytest.raises(IndexFileError, match="another process writes this index"):
        IndexFolder(index_folder.folder, store)

    store.create(wanting("a"))
    assert len(opened(index_folder)) == 1


def test_carried_to_another_machine(tmp_path, store, index_folder):
    """The files of a revision open in any folder."""
    ids = store.create_many(wanting(f"v{n}") for n in range(3))
    index_folder.refresh()
    store.delete(ids[0])
    revision = index_folder.refresh()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in index_folder.files(revision):
        shutil.copy(path, elsewhere)

    assert [matching_ids(Index.open(elsewhere, revision), f"v{n}") for n in range(2)] == [[], [ids[1]]]


def test_two_processes_read(store, index_folder):
    """Another process opens what this one writes."""
    created = store.create(wanting("a"))
    revision = index_folder.refresh()
    program = (
        "import sys; from pathlib import Path; from turnout.subscriptions.index import Column, Index\n"
        "index = Index.open(Path(sys.argv[1]), int(sys.argv[2]))\n"
        "found = index.match({'k': Column(['a', 'b'])}, 2)\n"
        "print(*found.rows.tolist(), *index.subscription_ids(found.subscriptions).to_pylist())"
    )
    arguments = [sys.executable, "-c", program, str(index_folder.folder), str(revision)]
    answer = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout

    assert answer.split() == ["0", created]


def test_readers_while_it_changes(store, index_folder):
    """Readers that open one revision after the other while layers come, go and are merged never miss what stays."""
    stays = store.create(wanting("a"))
    problems: list[str | Exception] = []
    latest, stop = [index_folder.refresh()], threading.Event()

    def read():
        try:
            while not stop.is_set():
                if stays not in matching_ids(Index.open(index_folder.folder, latest[0]), "a"):
                    problems.append("missed")
        except Exception as problem:  # noqa: BLE001 - a thread's failure has to reach the test
            problems.append(problem)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(40):
        created = store.create(wanting("a" if n % 2 else f"v{n}"))
        latest[0] = index_folder.refresh()
        if n % 3:
            store.delete(created)
    stop.set()
    for reader in readers:
        reader.join()

    assert problems == []


def test_each_record_matches_one_version(store, index_folder):
    """While a subscription is updated and layers are merged, every match has exactly one version, in their order."""
    store.create(Subscription(["0"], kiwi("k", "a*"), id="x"))
    latest, stop, seen = [index_folder.refresh()], threading.Event(), []

    def read():
        while not stop.is_set():
            index = Index.open(index_folder.folder, latest[0])
            found = index.deliveries(index.match({"k": Column(["ab", "ac"])}, 2))
            seen.append(index.destinations(found.destinations).to_pylist())

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(1, 41):
        # Neither the anchor nor the form is the same from version to version.
        condition = (kiwi("k", "a*"), kiwi("k", "*"), any_of(kiwi("k", "ab"), kiwi("k", "*c")))[n % 3]
        store.update("x", Subscription([str(n)], condition))
        latest[0] = index_folder.refresh()
    stop.set()
    for reader in readers:
        reader.join()

    assert {len(versions) for versions in seen} == {2}
    assert all(first == second for first, second in seen)
    assert matching_ids(opened(index_folder), "ab") == ["x"]


def test_a_whole_revision_outlives_its_writer(tmp_path, store):
    """A complete stored revision is available to the next writer, unchanged."""
    store.create(wanting("a", id_="first"))
    with IndexFolder(tmp_path / "index", store, keep=2) as writer:
        before = writer.revision
    store.create(wanting("a", id_="second"))

    with IndexFolder(tmp_path / "index", store, keep=2) as writer:
        assert matching_ids(Index.open(writer.folder, before), "a") == ["first"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="tells what is mapped on Linux only")
def test_a_reader_lets_go_of_old_revisions(store, index_folder):
    """One that matches with revision after revision has few files mapped: those of the latest, and the garbage's."""
    for number in range(40):
        store.create(wanting(str(number), id_=f"s{number}"))
        assert matching_ids(opened(index_folder), str(number)) == [f"s{number}"]
    gc.collect()

    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = {line.split()[5] for line in lines if f"{index_folder.folder}/segment-" in line}
    assert len(mapped) <= index_writer.LAYERS + 2


def cut(data, at):
    return data[:at]


def zeros(data, at):
    """Write zeros, as in a file that has its length but not yet its last blocks."""
    return data[:at] + bytes(len(data[at:]))


@pytest.mark.parametrize(("tear", "at"), [(cut, 0), (cut, 40), (cut, -8), (zeros, 0), (zeros, 40), (zeros, -128)])
def test_a_revision_that_a_power_cut_has_torn(tmp_path, store, tear, at):
    """Of what outlives a writer, the next one keeps what is whole; the rest it builds again."""
    store.create(wanting("a", id_="first"))
    with IndexFolder(tmp_path / "index", store, keep=2) as writer:
        before = writer.revision
    (segment,) = (tmp_path / "index").glob("segment-*.index")
    data = segment.read_bytes()
    segment.write_bytes(tear(data, at))
    assert segment.read_bytes() != data
    store.create(wanting("b", id_="second"))

    with IndexFolder(tmp_path / "index", store, keep=2) as writer:
        with pytest.raises(IndexFileError):
            Index.open(writer.folder, before)
        assert matching_ids(opened(writer), "b") == ["second"]
