"""``turnout subscriptions token``: a new bearer token, shown once."""

from __future__ import annotations

from typing import Annotated

import typer

from turnout.errors import SubscriptionInvalidError


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
