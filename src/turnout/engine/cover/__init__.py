"""Which subjects of a stream can matter to a route: its chain and mappings gone through with filters, not records.

`form` is what is known of a set of subjects on the way, `chain` and `mapping` take it through the route, `narrowing`
finds what of it a pattern can match, `fewest` makes few filters of many.
"""

from __future__ import annotations

from turnout.engine.cover.asked import Asked, asked_of
from turnout.engine.cover.chain import through_chain
from turnout.engine.cover.fewest import fewest
from turnout.engine.cover.form import SubjectForm
from turnout.engine.cover.mapping import through_mappings
from turnout.engine.cover.narrowing import narrowed

__all__ = ["Asked", "SubjectForm", "asked_of", "fewest", "narrowed", "through_chain", "through_mappings"]
