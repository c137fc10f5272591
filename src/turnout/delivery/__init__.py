"""Deliveries to HTTP endpoints: a dispatcher that takes them from a JetStream stream and posts them."""

try:
    import aiohttp as _aiohttp  # noqa: F401 - only to say which extra is missing
except ModuleNotFoundError as missing:
    if missing.name != "aiohttp":
        raise
    from turnout.errors import MissingExtraError as _MissingExtraError

    raise _MissingExtraError("webhooks", "aiohttp") from None
