"""Pictures as inline SVG: attributes and classes only, as the page allows no inline style."""

from turnout.console.figures.bars import bars, counted
from turnout.console.figures.flow import Branch, FlowStep, flow
from turnout.console.figures.plot import Point, Series, plot
from turnout.console.figures.sparkline import sparkline

__all__ = ["Branch", "FlowStep", "Point", "Series", "bars", "counted", "flow", "plot", "sparkline"]
