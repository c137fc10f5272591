"""Tests of a route: their files, runs, coverage and reports."""
