"""Token files, what tokens are recognised by, and who they stand for."""

from __future__ import annotations

import hashlib
import threading

import grpc
import pytest
import yaml

from turnout.errors import ConfigError
from turnout.rpc.caller import USUAL_RIGHTS, Caller, Right
from turnout.rpc.server import ServerSettings
from turnout.rpc.status import RefusedError
from turnout.rpc.tokens import Scrypt, Tokens, digest_of_text, entry_of, new_token, read_tokens


def test_digests():
    """A digest read back from its text recognises the same token, and shows nothing of it."""
    digest = Scrypt.of("s3cret")

    assert digest_of_text(str(digest)) == digest
    assert digest.fits("s3cret")
    assert not digest.fits("s3cre")
    assert Scrypt.of("s3cret") != digest
    assert digest_of_text(sha256("s3cret")).fits("s3cret")


def sha256(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


@pytest.fixture
def file(tmp_path):
    """Write tokens.yaml."""

    def write(*entries: object, text: str | None = None):
        path = tmp_path / "tokens.yaml"
        path.write_text(yaml.safe_dump(list(entries)) if text is None else text)
        return path

    return write


def test_a_token_stands_for_a_tenant(file):
    """An entry gives the tenant, the rights and the destinations; what is left out is everything but
    `Right.UNMASKED`, which has to be named."""
    path = file(
        {"hash": sha256("a"), "tenant": "acme", "rights": ["read"], "destinations": ["acme.>"]},
        {"hash": sha256("b"), "tenant": "*"},
        {"hash": str(Scrypt.of("name.c")), "id": "name", "tenant": "bolt"},
    )
    tokens = Tokens(read_tokens(path))

    assert tokens.caller("a") == Caller("acme", frozenset({Right.READ}), ("acme.>",))
    assert tokens.caller("b") == Caller(None, frozenset(USUAL_RIGHTS))
    # Twice: the second time it is remembered.
    assert tokens.caller("name.c") == tokens.caller("name.c") == Caller("bolt", frozenset(USUAL_RIGHTS))
    assert [tokens.caller(wrong) for wrong in ("", "c", "name.d", "A", sha256("a"))] == [None] * 5


def test_a_new_token_is_let_in_by_its_entry(file):
    """The printed entry recognises the token, and does not contain it."""
    written, token = new_token()
    entry = entry_of(token, "acme", [Right.MATCH], ["acme.>"])
    caller = Tokens(read_tokens(file(text=entry))).caller(written)

    assert caller == Caller("acme", frozenset({Right.MATCH}), ("acme.>",))
    assert written.partition(".")[2] not in entry
    assert new_token()[0] != written


@pytest.mark.parametrize(
    ("name", "text"),
    [("tokens", ""), ("tokens", "\n \n"), ("tokens.yaml", ""), ("tokens.yaml", "\n \n"), ("tokens.yaml", "[]")],
)
def test_a_file_without_tokens(tmp_path, name, text):
    """A token file without a token is refused."""
    (tmp_path / name).write_text(text)

    with pytest.raises(ConfigError, match="has no tokens"):
        ServerSettings.from_environment({"API_TOKENS_FILE": str(tmp_path / name)})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"hash": "s3cret", "tenant": "acme"}, r"tokens\.0\.hash: expected scrypt:"),
        ({"hash": "sha256:12", "tenant": "acme"}, r"tokens\.0\.hash: expected scrypt:"),
        ({"hash": "scrypt:3:8:1:00:00", "tenant": "acme"}, r"tokens\.0\.hash: expected scrypt:"),
        ({"hash": "scrypt:1073741824:8:1:00:00", "tenant": "acme"}, r"tokens\.0\.hash: expected scrypt:"),
        ({"hash": sha256("s3cret")}, r"tokens\.0\.tenant: Field required"),
        ({"hash": sha256("s3cret"), "tenant": "a/b"}, r"tokens\.0\.tenant: no tenant is named 'a/b'"),
        ({"hash": sha256("s3cret"), "tenant": "a", "rights": ["all"]}, r"tokens\.0\.rights\.0: .*'read'"),
        ({"hash": sha256("s3cret"), "tenant": "a", "right": ["read"]}, r"tokens\.0\.right: Extra"),
        ({"hash": sha256("s3cret"), "tenant": "a", "destinations": ["a..b"]}, r"tokens\.0\.destinations\.0: "),
        ("s3cret", r"tokens\.0: "),
    ],
)
def test_entries_that_mean_nothing(file, entry, words):
    """A wrong entry is refused with its place, and neither token nor digest is repeated."""
    with pytest.raises(ConfigError, match=words) as refused:
        read_tokens(file(entry))

    assert "s3cret" not in str(refused.value)
    assert sha256("s3cret")[7:] not in str(refused.value)


def test_a_file_that_is_not_yaml(file, tmp_path):
    """The error names the line; YAML in a file with another suffix is not taken for a list of tokens."""
    with pytest.raises(ConfigError, match=r"is not YAML \(line 2\)"):
        read_tokens(file(text="- hash: x\n]"))
    (tmp_path / "tokens").write_text(f"- hash: {sha256('x')}\n  tenant: acme\n")
    with pytest.raises(ConfigError, match=r"name it tokens\.yaml"):
        read_tokens(tmp_path / "tokens")


def test_a_wrong_token_is_computed_once(file, monkeypatch):
    """A repeated wrong token is computed by scrypt once; a new one is computed as usual."""
    token, accepted = new_token()
    tokens = Tokens(read_tokens(file(text=entry_of(accepted, "*", list(Right), []))))
    computed = []
    fits = Scrypt.fits
    monkeypatch.setattr(Scrypt, "fits", lambda digest, written: computed.append(written) or fits(digest, written))

    wrong = f"{accepted.id}.wrong"
    assert [tokens.caller(wrong) for _ in range(50)] == [None] * 50
    assert tokens.remembered(token) is None
    assert [tokens.caller(token) for _ in range(50)] == [Caller(None)] * 50
    assert tokens.remembered(token) == Caller(None)
    assert computed == [wrong, token]


def test_few_calls_wait_for_scrypt(file, monkeypatch):
    """Beyond *waiting* calls an unknown token is refused at once; known ones and those of no name are answered."""
    token, accepted = new_token()
    tokens = Tokens(read_tokens(file(text=entry_of(accepted, "*", list(Right), []))), waiting=1)
    assert tokens.caller(token) == Caller(None)
    begun, going = threading.Event(), threading.Event()
    monkeypatch.setattr(Scrypt, "fits", lambda *_: begun.set() or not going.wait(30))
    computing = threading.Thread(target=tokens.caller, args=(f"{accepted.id}.first",))
    computing.start()
    assert begun.wait(30)
    try:
        with pytest.raises(RefusedError, match="too many unknown tokens") as refused:
            tokens.caller(f"{accepted.id}.second")
        assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert tokens.caller(token) == Caller(None)
        assert tokens.caller("nobody.x") is None
    finally:
        going.set()
        computing.join()


def test_a_changed_file_is_followed(file, monkeypatch, caplog):
    """A removed token stops working, a new one works; a file that cannot be used changes nothing, and is logged."""
    monkeypatch.setattr("turnout.base.files._LOOK_SECONDS", 0.0)
    path = file({"hash": sha256("a"), "tenant": "acme"}, {"hash": sha256("b"), "tenant": "acme"})
    tokens = Tokens(read_tokens(path))
    assert tokens.caller("a") == tokens.remembered("a") is not None
    assert tokens.caller("c") is None

    file({"hash": sha256("b"), "tenant": "other"}, {"hash": sha256("c"), "tenant": "acme"})

    assert tokens.remembered("a") is None
    assert [tokens.caller(token) is not None for token in "abc"] == [False, True, True]
    caller = tokens.caller("b")
    assert caller is not None
    assert caller.tenant == "other"
    file(text="- hash: nothing")
    assert [tokens.caller(token) is not None for token in "abc"] == [False, True, True]
    assert "the former tokens hold" in caplog.text
    path.unlink()
    assert tokens.caller("b") is not None
