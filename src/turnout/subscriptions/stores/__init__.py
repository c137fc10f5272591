"""Stores included in turnout, each an entry point in the group ``turnout.stores``.

Nothing is imported here: a store's driver is loaded when the store is opened.
"""
