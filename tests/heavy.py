"""Tests that `make check` runs and `make test` leaves out: with clusters, kills or environments of their own."""

from __future__ import annotations

from pathlib import Path

__all__ = ["BESIDE", "HEAVY", "is_one_of"]

HEAVY = frozenset(
    {
        "benchmarks/test_peers.py",
        "codecs/test_typed_json.py::test_the_slow_reading_agrees_with_the_strict_one",
        "deploy/test_chart.py",
        "deploy/test_image.py",
        "deploy/test_prometheus.py",
        "deploy/test_stack.py",
        "docs/test_site.py",
        "history/test_accept.py::test_whatever_was_expected_can_be_rewritten",
        "integration/test_cluster_index.py",
        "integration/test_cluster_nats.py",
        "integration/test_connect_nats.py",
        "integration/test_connect_route.py",
        "integration/test_explained.py",
        "integration/test_faults_nats.py::test_the_driver_is_killed_and_the_layout_changes",
        "integration/test_push_down.py::test_killed_in_the_middle",
        "integration/test_recovery.py::test_a_clock_that_is_set_for_all_processes",
        "integration/test_recovery.py::test_sigterm_to_all_processes",
        "integration/test_replay.py::test_killed_in_the_middle",
        "integration/test_upgrade.py::test_back_to_the_version_before_the_engine",
        "integration/test_upgrade.py::test_killed_and_back",
        "nats/jetstream/test_cluster.py",
        "server/test_openapi.py::test_schemathesis_finds_nothing",
        "spark/test_notebook.py::test_what_the_cells_print",
        "spark/test_subjects.py::test_many_forms_fit_into_a_small_driver",
        "spark/test_subjects.py::test_generated_transforms_are_equal_to_the_pure_ones",
        "test_wheel.py",
    }
)
"""Files, and functions of files, in this folder."""

BESIDE = frozenset(
    {
        "integration/test_connect_nats.py",
        "integration/test_upgrade.py::test_back_to_the_version_before_the_engine",
        "integration/test_upgrade.py::test_killed_and_back",
    }
)
"""Those of them with whole routes that run beside the others, so that both of `tools.run_tests` take as long."""


def is_one_of(tests: frozenset[str], file: Path, function: str) -> bool:
    """Whether a test is one of these; *file* is relative to this folder."""
    return file.as_posix() in tests or f"{file.as_posix()}::{function}" in tests
