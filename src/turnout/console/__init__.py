"""Web console of a server."""

from turnout.console.app import add_console

__all__ = ["add_console"]
