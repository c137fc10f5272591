"""A nats-server's configuration as a route: an account's mappings, on the streams that it can reach."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from turnout.errors import ConfigError, Mistake
from turnout.routes.drafts.route_draft import Adoption, Draft, Loss, Omission, named_after, route_name
from turnout.routes.yaml_text import Document
from turnout.subjects import load_document, mappings_from_claim, mappings_in
from turnout.subjects.mapping_readers import (
    GLOBAL,
    account_of,
    accounts_with_mappings,
    mapping_warnings,
    stream_mappings,
    stream_of_document,
)
from turnout.subjects.pattern import FULL, is_subset

_ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - addresses of a server, not ours
_REASONS = {
    "leafnodes": "the route connects to one server; a JetStream behind a leaf node is reached by its domain",
    "gateway": "servers find each other",
    "websocket": "the route speaks NATS over TCP",
    "mqtt": "the route speaks NATS",
    "jetstream": "but for its domain: streams are the server's own",
    "accounts": "but for the account that the route is of",
    "cluster": "but for its name: servers find each other",
    "no_auth_user": "the user of clients that do not log in",
}
_API = "$JS.API.>"
_CREDS = "NATS_CREDS"


def draft_of_server(
    file: Path,
    account: str | None = None,
    *,
    name: str | None = None,
    source: Document | None = None,
    sink: Document | None = None,
) -> Draft:
    """Return the route that maps subjects as one account of a server does, or a part of a stream.

    Args:
        file: the configuration, or the JWT of an account, or a stream's configuration.
        account: account of the mappings; the only account that has some, or the server's top level, if not given. Of a
            stream, the part.
        name: name of the route; the file's if not given.
        source: source of the records, if not the server itself.
        sink: sink of the messages, likewise.

    Raises:
        ConfigSyntaxError: the file is no configuration.
        ConfigError: it has no mappings, there is no such account, or several have mappings and none was chosen.
        OSError: it cannot be read.
    """
    document = load_document(file)
    stream = stream_of_document(document)
    if stream is not None:
        draft = _draft_of_stream(stream, account, name, source, sink)
        return replace(draft, left=(*draft.left, *_other_resources(document)))
    config = {key.lower(): value for key, value in document.items()}
    if isinstance(document.get("nats"), Mapping):
        # Only a server with an operator has accounts of JWTs.
        own = {"mappings": mappings_from_claim(document)}
        config = {"operator": str(document.get("iss")), "accounts": {str(document.get("name")): own}}
    return _ServerDrafter(config, _chosen(config, account, file), file).draft(name, source, sink)


def _other_resources(document: Mapping[str, object]) -> Iterator[Omission]:
    """Yield the resources of a file of Kubernetes beside its stream."""
    items = document.get("items") if document.get("kind") == "List" else None
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and item.get("kind") != "Stream":
            metadata = item.get("metadata")
            named = metadata.get("name") if isinstance(metadata, Mapping) else None
            yield Omission(f"{item.get('kind')} {named}", "a resource of its own, which stays the cluster's")


_STREAM_PARTS = ("subject_transform", "mirror", "sources", "republish")
_DOMAIN = re.compile(r"\$JS\.([^.]+)\.API")
_READ = frozenset({
    "name", "src", "dest", "subject_transforms", "filter_subject", "opt_start_seq", "opt_start_time", "external",
    "external_api_prefix", "external_deliver_prefix",
})  # fmt: skip
"""Parts of a mirror, a source, or a transform that a route has a counterpart of, or needs none of."""


def _draft_of_stream(
    stream: Mapping[str, object], part: str | None, name: str | None, source: Document | None, sink: Document | None
) -> Draft:
    """Return the route that maps subjects as a part of a stream does."""
    chosen, mappings = stream_mappings(stream, part)
    own = str(stream.get("name"))
    path = f"config.{chosen}" if chosen in _STREAM_PARTS else f"config.sources.{chosen}"
    several = stream.get("sources")
    sources = [one for one in several if isinstance(one, Mapping)] if isinstance(several, list) else []
    found = stream.get(chosen) if chosen in _STREAM_PARTS else [one for one in sources if one.get("name") == chosen]
    entries = [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, Mapping)]
    server: Document = {"format": "nats", "servers": "${NATS_URL:-nats://127.0.0.1:4222}"}
    ends, note = ({**server, "stream": own}, server), "take it out there, or it applies twice"
    if chosen not in ("subject_transform", "republish"):
        ends = {**server, "stream": str(entries[0].get("name"))}, {**server, "stream": own}
        note = f"take it out there, and let {own} have the subjects that the route sends to"
    taken = [Adoption(path, "mappings")]
    left = [
        Omission(path, f"still the stream's: {note}"),
        Omission("source.servers", "a guess: set the variable NATS_URL, or give --from"),
    ]
    others = [f"config.{other}" for other in _STREAM_PARTS if stream.get(other) and other != chosen]
    if chosen not in _STREAM_PARTS:
        others.remove("config.sources")
        others += [f"config.sources.{one.get('name')}" for one in sources if one.get("name") != chosen]
    left += [Omission(other, "another part of the stream: --account names the one") for other in dict.fromkeys(others)]
    left += [Omission(path, warning) for warning in mapping_warnings(mappings)]
    options = _reading(entries, path, left)
    is_whole = chosen not in ("subject_transform", "republish") and not all(map(_is_filtered, entries))
    if chosen != "subject_transform" and not is_whole and FULL not in mappings:
        # What no transform fits is not taken from the other stream, and not republished; a stream itself keeps it.
        covered = {one for one in mappings for other in mappings if one != other and is_subset(one, other)}
        options["filterSubject"] = [one for one in mappings if one not in covered]
    read = source or ends[0]
    if read.get("format") == "nats":
        read = {**read, **{option: value for option, value in options.items() if option not in read}}
        taken += [Adoption(path, f"source.{option}") for option in options]
    else:
        left += [Loss(path, f"a source of this format has no {option}: {value}") for option, value in options.items()]
    document: Document = {
        "name": name or route_name(own),
        "source": read,
        "mappings": mappings,
        "sink": sink or ends[1],
    }
    return Draft(document, tuple(taken), tuple(left))


def _is_filtered(entry: Mapping[str, object]) -> bool:
    """Return True if a mirror or a source has nothing but what its transforms or its filter fit."""
    return bool(entry.get("subject_transforms") or entry.get("filter_subject"))


def _reading(entries: Sequence[Mapping[str, object]], path: str, left: list[Omission]) -> Document:
    """Return where a mirror or a source is read from, as options of the route's source.

    Args:
        entries: the objects of a part of a stream; a source may be there several times.
        path: their place.
        left: gets what no option can hold.
    """
    found: dict[str, list[object]] = {"start": [], "domain": [], "apiPrefix": []}
    for entry in entries:
        external = entry.get("external")
        api = external.get("api") if isinstance(external, Mapping) else entry.get("external_api_prefix")
        domain = _DOMAIN.fullmatch(str(api))
        found["start"].append(entry.get("opt_start_seq") or entry.get("opt_start_time") or None)
        found["domain"].append(domain and domain[1])
        found["apiPrefix"].append(None if domain else api or None)
        left += [Loss(f"{path}.{key}", "has no counterpart") for key in entry if entry[key] and key not in _READ]
    different = [option for option, values in found.items() if any(value != values[0] for value in values)]
    left += [Loss(path, f"is there several times, with another {option} each time") for option in different]
    return {option: values[0] for option, values in found.items() if option not in different and values[0]}


def _chosen(config: Mapping[str, object], account: str | None, file: Path) -> str:
    if account is not None:
        if not mappings_in(config, account):
            raise ConfigError([Mistake("--account", f"the account {account!r} of {file} has no mappings")])
        return account
    holders = accounts_with_mappings(config)
    if len(holders) == 1:
        return holders[0]
    if not holders:
        raise ConfigError([Mistake("", f"{file} has no mappings")])
    raise ConfigError([Mistake("--account", f"expected one of {', '.join(holders)}: each of them has mappings")])


def _variable(name: str, value: str) -> str:
    """Return a variable with the server's value as its default; other characters are left to the variable."""
    return f"${{{name}}}" if set(value) & set("${}\"'\n") else f"${{{name}:-{value}}}"


class _ServerDrafter:
    """Conversion of one nats-server configuration to a draft."""

    def __init__(self, config: Mapping[str, object], account: str, file: Path) -> None:
        self.config = config
        self.account = account
        self.file = file
        self.taken: list[Adoption] = []
        self.left: list[Omission] = []
        self.variables: list[str] = []

    def draft(self, name: str | None, source: Document | None, sink: Document | None) -> Draft:
        end = self._server()
        document: Document = {
            "name": name or route_name(named_after(self.file)),
            "source": source or {**end, "stream": self._stream()},
            "mappings": mappings_in(self.config, self.account),
        }
        where = "" if self.account == GLOBAL else f"accounts.{self.account}."
        self.taken.append(Adoption(f"{where}mappings", "mappings"))
        self.left.append(Omission(f"{where}mappings", "still the server's: take them out there, or they apply twice"))
        self.left += [Omission(f"{where}mappings", note) for note in mapping_warnings(document["mappings"])]
        cluster = self._inner("cluster").get("name")
        if isinstance(cluster, str):
            document["cluster"] = cluster
            self.taken.append(Adoption("cluster.name", "cluster"))
        document["sink"] = sink or end
        self._rest()
        files = tuple(name for name in self.variables if name == _CREDS)
        return Draft(document, tuple(self.taken), tuple(self.left), tuple(self.variables), files)

    def _inner(self, name: str) -> Mapping[str, object]:
        block = self.config.get(name)
        return block if isinstance(block, Mapping) else {}

    def _server(self) -> Document:
        """Return the connection options of a client of the account."""
        end: Document = {"format": "nats", "servers": f"{self._scheme()}://{self._address()}"}
        end |= self._login()
        domain = self._inner("jetstream").get("domain")
        prefix = self._prefix()
        if prefix is not None:
            end["apiPrefix"] = prefix
            self.taken.append(Adoption(f"accounts.{self.account}.imports", "source.apiPrefix"))
        elif isinstance(domain, str):
            end["domain"] = _variable("NATS_DOMAIN", domain)
            self.taken.append(Adoption("jetstream.domain", "source.domain"))
        return end

    def _scheme(self) -> str:
        if not self._inner("tls"):
            return "nats"
        self.left.append(
            Omission("tls", "the route speaks TLS; its tlsCa, tlsCert and tlsKey are the client's own files")
        )
        return "tls"

    def _address(self) -> str:
        listen = str(self.config.get("listen", ""))
        host, colon, port = listen.rpartition(":")
        if not colon:
            host, port = ("", listen) if listen.isdecimal() else (listen, "")
        host = str(self.config.get("host") or self.config.get("net") or host).strip("[]")
        port = str(self.config.get("port") or port or "4222")
        for name in ("listen", "host", "net", "port"):
            if name in self.config:
                self.taken.append(Adoption(name, "source.servers"))
        reached = "127.0.0.1" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
        return f"{reached}:{port}"

    def _login(self) -> Document:
        """Return the first user of the account; passwords stay where they are."""
        top = self.account == GLOBAL
        holder = self._inner("authorization") if top else account_of(self.config, self.account)
        where = "authorization" if top else f"accounts.{self.account}"
        users = holder.get("users")
        user = (
            next((candidate for candidate in users if isinstance(candidate, Mapping)), {})
            if isinstance(users, list)
            else holder
        )
        if "token" in user:
            return {"token": self._secret("NATS_TOKEN", f"{where}.token")}
        if "nkey" in user:
            return {"nkeySeed": self._secret("NATS_SEED", f"{where}.users")}
        name = user.get("user", user.get("username"))
        if not isinstance(name, str):
            return self._credentials()
        self.taken.append(Adoption(f"{where}.users" if users else where, "source.user"))
        return {
            "user": _variable("NATS_USER", name),
            "password": self._secret("NATS_PASSWORD", f"{where}.users" if users else where),
        }

    def _credentials(self) -> Document:
        """Return the file of credentials that a server with an operator requires; empty for another server."""
        operator = next((name for name in ("operator", "operators", "trusted_keys") if name in self.config), None)
        if operator is None:
            return {}
        self.taken.append(Adoption(operator, "source.credentials"))
        self.variables.append(_CREDS)
        self.left.append(Omission("resolver", f"users have credentials: set the variable {_CREDS} to a .creds file"))
        return {"credentials": f"${{{_CREDS}}}"}

    def _secret(self, variable: str, name: str) -> str:
        self.variables.append(variable)
        self.left.append(Omission(name, f"a secret is not copied: set the variable {variable}"))
        return f"${{{variable}}}"

    def _prefix(self) -> str | None:
        """Return the prefix under which the account imports the JetStream of another one (ADR-19)."""
        imports = account_of(self.config, self.account).get("imports") if self.account != GLOBAL else None
        for import_ in imports if isinstance(imports, list) else ():
            service = import_.get("service") if isinstance(import_, Mapping) else None
            if isinstance(service, Mapping) and service.get("subject") == _API and isinstance(import_.get("to"), str):
                return str(import_["to"]).removesuffix(".>")
        return None

    def _stream(self) -> str:
        stream = "".join(char if char.isalnum() else "_" for char in named_after(self.file)).upper()
        self.left.append(Omission("source.stream", f"a guess: {stream}; --from says which stream is read"))
        return stream

    def _rest(self) -> None:
        """Report every block and option that no part of the route was made from."""
        reported = {item.name for item in self.taken} | {item.name for item in self.left}
        for name in self.config:
            if name not in reported and name not in ("mappings", "maps"):
                self.left.append(Omission(name, _REASONS.get(name, "an option of the server")))
