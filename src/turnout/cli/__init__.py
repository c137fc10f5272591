"""The command line: ``turnout demo | run | check | test | explain | map | subscriptions | tail | kv | bench``."""

from turnout.cli.app import main

__all__ = ["main"]
