"""Analysis of subscriptions: equivalent and subsumed ones, contradictions, and their costs."""

from turnout.subscriptions.analysis.candidates import Verdict, subsumed
from turnout.subscriptions.analysis.cost import Access, AnchorCounter, AnchorTraffic
from turnout.subscriptions.analysis.diagram import CanonicalForm, form_of
from turnout.subscriptions.analysis.report import Analysis, Catalogue, Equal, Loss, Subsumed, Traffic, analysis_of

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
