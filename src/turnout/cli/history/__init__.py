"""Commands that read the history of a route: its tests, diffs, replays, dead letters and messages."""
