"""Subscriptions service over gRPC, with the same store and the same index as HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from turnout.rpc.settings import ServerSettings
from turnout.rpc.tenants import Tenants
from turnout.server.config import ServerConfig
from turnout.subscriptions.destinations import Rights
from turnout.subscriptions.service import KiwiTrees
from turnout.subscriptions.store import Store


def grpc_settings(config: ServerConfig, environment: Mapping[str, str]) -> ServerSettings:
    """Return the service's settings, from the environment and the configuration, which takes precedence.

    Raises:
        ConfigError: lists every setting that cannot be used.
    """
    own = {
        "API_HOST": config.grpc_address.host,
        "API_PORT": str(config.grpc_address.port),
        "API_INSECURE": str(config.insecure).lower(),
        "LOG_LEVEL": config.log_level,
    }
    if config.tls is not None:
        own |= {"API_TLS_CERT": str(config.tls.cert), "API_TLS_KEY": str(config.tls.key)}
        own |= {"API_TLS_CLIENT_CA": str(config.tls.client_ca)} if config.tls.client_ca else {}
    if config.tokens is not None:
        own["API_TOKENS_FILE"] = str(config.tokens)
    return ServerSettings.from_environment({**environment, **own}, jwt=config.jwt_settings())


def tenants_of(store: Store, settings: ServerSettings, kiwi_trees: KiwiTrees | None = None) -> Tenants:
    """Return the indexes and use cases of gRPC and HTTP; the whole store's index is built immediately."""
    return Tenants(
        store,
        {None, *settings.tenants()},
        kiwi_trees=kiwi_trees,
        max_page=settings.max_page,
        rights=Rights.of(settings.allow_destinations),
    )
