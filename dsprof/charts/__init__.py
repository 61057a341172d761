"""Figures of a run: plotly figures as plain dicts, in the palette's colours for a light page."""

from dsprof.charts.columns import step_axis
from dsprof.charts.comm import bandwidths, ceiling, comm_sizes, limit_of
from dsprof.charts.figure import Figure
from dsprof.charts.icicle import icicle
from dsprof.charts.lanes import step_lanes
from dsprof.charts.palette import LABEL, MIXED, PALETTE, PATTERN, SHORT, STACK
from dsprof.charts.phase_table import PhaseTable, codes_of, phase_table
from dsprof.charts.problems import SYMBOL, first_cause, on_time, problem_line
from dsprof.charts.ranks import beyond_median, has_words, rank_map, rank_phases
from dsprof.charts.series import TRAINING, measured, over_steps, training, unchanged
from dsprof.charts.timeline import HELD, RATES, bound_by, held, highest, timeline

__all__ = [
    "HELD",
    "LABEL",
    "MIXED",
    "PALETTE",
    "PATTERN",
    "RATES",
    "SHORT",
    "STACK",
    "SYMBOL",
    "TRAINING",
    "Figure",
    "PhaseTable",
    "bandwidths",
    "beyond_median",
    "bound_by",
    "ceiling",
    "codes_of",
    "comm_sizes",
    "first_cause",
    "has_words",
    "held",
    "highest",
    "icicle",
    "limit_of",
    "measured",
    "on_time",
    "over_steps",
    "phase_table",
    "problem_line",
    "rank_map",
    "rank_phases",
    "step_axis",
    "step_lanes",
    "timeline",
    "training",
    "unchanged",
]
