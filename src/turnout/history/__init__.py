"""Work on stored records: a route's program over a chosen range, without a run."""

from turnout.history.suite.cases import CaseResult, Report, run_cases
from turnout.history.suite.suite import Case, Suite, load_suites

__all__ = ["Case", "CaseResult", "Report", "Suite", "load_suites", "run_cases"]
