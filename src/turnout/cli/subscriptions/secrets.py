"""``turnout subscriptions token``, ``secret-key`` and ``reseal``, and the secrets that ``--sign`` makes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.plural import plural
from turnout.base.terminal import printable_lines
from turnout.cli.options import AsJson, StoreTimeout, StoreUrl, opened_store
from turnout.errors import SubscriptionInvalidError

if TYPE_CHECKING:
    from turnout.subscriptions.delivery_settings import DeliverySettings


Sign = Annotated[
    bool,
    typer.Option("--sign", help="Sign its requests with a new secret, printed once; earlier secrets stay valid."),
]


def secret_key() -> None:
    """Print a new key for TURNOUT_SECRET_KEY, which encrypts the secrets of subscriptions."""
    from turnout.subscriptions.sealing import new_key

    typer.echo(new_key())


def reseal(store: StoreUrl = None, timeout: StoreTimeout = None, as_json: AsJson = False) -> None:
    """Encrypt the secrets of all subscriptions with the first key of TURNOUT_SECRET_KEY."""
    from turnout.errors import SubscriptionNotFoundError
    from turnout.subscriptions.sealing import SealError, needed_keys, resealed
    from turnout.subscriptions.store import edit

    keys = needed_keys()
    changed: list[str] = []
    failed: dict[str, str] = {}
    with opened_store(store, timeout) as opened:
        for one in opened.snapshot():
            try:
                if resealed(keys, one) != one:
                    edit(opened, one.id, lambda found: resealed(keys, found))
                    changed.append(one.id)
            except SealError as problem:
                failed[one.id] = str(problem)
            except SubscriptionNotFoundError:
                # Deleted since the snapshot.
                continue
    if as_json:
        typer.echo(json.dumps({"resealed": changed, "failed": failed}))
    else:
        lines = [f"{id_}: {problem}" for id_, problem in failed.items()]
        typer.echo(printable_lines([*lines, f"{plural(len(changed), 'subscription')} encrypted anew"]), err=True)
    if failed:
        raise typer.Exit(1)


def signed_with(secret: str, delivery: DeliverySettings | None) -> DeliverySettings:
    """Return delivery settings with one more secret, before the others.

    Raises:
        ConfigError: there would be too many.
    """
    from turnout.subscriptions.delivery_settings import DeliverySettings
    from turnout.subscriptions.signing_secrets import PlainSecret

    settings = delivery or DeliverySettings()
    return replace(settings, secrets=(PlainSecret(secret), *settings.secrets))


def secret_part(secret: str) -> dict[str, str]:
    """Return the part of a JSON output that shows a new secret; empty for none."""
    return {"secret": secret} if secret else {}


def echo_secret(secret: str, *, as_json: bool) -> None:
    """Print a new secret on standard error, unless the output is JSON and has it."""
    if secret and not as_json:
        typer.echo(f"the secret, which is not shown again: {secret}", err=True)


def token(
    tenant: Annotated[str, typer.Argument(help="Whose subscriptions it opens; * for the whole store.")],
    right: Annotated[
        list[str] | None,
        typer.Option("--right", help="read, write, match or unmasked; several times. [the first three]"),
    ] = None,
    destination: Annotated[
        list[str] | None,
        typer.Option("--destination", help="Pattern of destinations of new subscriptions; several times. [any]"),
    ] = None,
) -> None:
    """Print a new token on standard error, once, and its entry for the token file on standard output."""
    from turnout.rpc.caller import USUAL_RIGHTS, Right
    from turnout.rpc.tokens import EVERY_TENANT, entry_of, new_token
    from turnout.subscriptions.tenants import check_tenant

    if tenant != EVERY_TENANT:
        check_tenant(tenant)
    unknown = sorted(set(right or ()) - {str(right_name) for right_name in Right})
    if unknown:
        raise SubscriptionInvalidError(f"--right: expected {', '.join(Right)}, found {', '.join(map(repr, unknown))}")
    written, entry = new_token()
    typer.echo(f"the token, which is not kept anywhere: {written}", err=True)
    typer.echo(entry_of(entry, tenant, [Right(name) for name in right or USUAL_RIGHTS], destination or ()), nl=False)
