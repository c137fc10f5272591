"""Versions before this one: their code, where the repository has its history, and what they have left on a disk."""
