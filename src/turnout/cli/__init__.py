"""The command line: one module for each command (``turnout --help`` lists them)."""

from turnout.cli.app import main

__all__ = ["main"]
