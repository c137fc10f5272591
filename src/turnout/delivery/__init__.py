"""Deliveries to HTTP endpoints: a dispatcher that takes them from a JetStream stream and posts them."""

try:
    import aiohttp as _aiohttp  # noqa: F401 - only to say which extra is missing
    import httptools as _httptools  # noqa: F401 - the same
except ModuleNotFoundError as missing:
    if missing.name not in ("aiohttp", "httptools"):
        raise
    from turnout.errors import MissingExtraError as _MissingExtraError

    raise _MissingExtraError("webhooks", missing.name) from None
