"""Analysis of subscriptions: equivalent and subsumed ones, contradictions, and their costs."""

from turnout.subscriptions.analysis.canonical import CanonicalForm, form_of
from turnout.subscriptions.analysis.cost import AnchorCounter, AnchorTraffic
from turnout.subscriptions.analysis.findings import Access, Analysis, Equal, Loss, Subsumed, Traffic
from turnout.subscriptions.analysis.report import Catalogue, analysis_of
from turnout.subscriptions.analysis.subsumption import Verdict, subsumed

__all__ = [
    "Access",
    "Analysis",
    "AnchorCounter",
    "AnchorTraffic",
    "CanonicalForm",
    "Catalogue",
    "Equal",
    "Loss",
    "Subsumed",
    "Traffic",
    "Verdict",
    "analysis_of",
    "form_of",
    "subsumed",
]
