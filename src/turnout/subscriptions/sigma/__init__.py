"""Sigma's detection rules as conditions.

A rule is read from YAML and becomes a condition over the event's fields as metadata keys. Sigma compares without case,
so each of its texts becomes a leaf that ignores case, unless it has the modifier ``cased``. What has no counterpart is
named, and leaves the other rules alone. Source: the Sigma specification, version 2.
"""

from turnout.subscriptions.sigma.rules import SigmaRule, SkippedRule, read_file, read_text, rule_files

__all__ = ["SigmaRule", "SkippedRule", "read_file", "read_text", "rule_files"]
