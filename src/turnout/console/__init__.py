"""The console: what people see of a server, in a browser."""

from turnout.console.app import add_console

__all__ = ["add_console"]
