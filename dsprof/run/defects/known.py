"""The known defects, in the order in which they are repaired.

Sources: DeepSpeed's history, and real runs of its versions.
"""

from __future__ import annotations

from typing import Final

from dsprof.run.defects.caveats import (
    hidden_lines,
    host_time_on_gpu,
    last_micro_throughput,
    memory_breakdown,
    pipeline_reduction,
    reduce_scatter_n_times,
    subgroup_bandwidth,
    zero_stage_unknown,
)
from dsprof.run.defects.clocks import clock_runs_backwards
from dsprof.run.defects.cumulative import (
    cumulative_comm_latency,
    cumulative_moe_timers,
    summary_table,
)
from dsprof.run.defects.epoch_means import single_turns
from dsprof.run.defects.from_launch import steps_from_launch
from dsprof.run.defects.impossible import impossible_rates, impossible_seconds, initial_step_zero
from dsprof.run.defects.maxima import maxima_of_parts
from dsprof.run.defects.overlapping import overlapping_windows
from dsprof.run.defects.resumed import rates_of_all_steps
from dsprof.run.defects.step_timers import (
    all_zero_timers,
    last_interval_only,
    last_step_divided,
    zero_global_timers,
)
from dsprof.run.defects.turns import (
    behind_evaluations,
    done_aside,
    last_batch_alone,
    of_micro_batches,
    several_batches,
)
from dsprof.run.defects.unplaced import unplaced_timers
from dsprof.run.defects.unread import cut_head, cut_short
from dsprof.run.defects.windows import lone_print
from dsprof.run.defects.wrong_units import (
    beyond_the_clock,
    monitor_1000x,
    pipeline_1000x,
    rate_1000x,
    rates_of_one_update,
    throughput_per_print,
)
from dsprof.run.repairs import Defect

DEFECTS: Final[tuple[Defect, ...]] = (
    steps_from_launch,
    impossible_seconds,
    impossible_rates,
    rates_of_all_steps,
    cut_short,
    cut_head,
    initial_step_zero,
    single_turns,
    several_batches,
    done_aside,
    overlapping_windows,
    of_micro_batches,
    last_batch_alone,
    behind_evaluations,
    zero_global_timers,
    all_zero_timers,
    maxima_of_parts,
    unplaced_timers,
    cumulative_comm_latency,
    summary_table,
    cumulative_moe_timers,
    clock_runs_backwards,
    pipeline_1000x,
    rate_1000x,
    monitor_1000x,
    rates_of_one_update,
    beyond_the_clock,
    lone_print,
    throughput_per_print,
    last_interval_only,
    last_step_divided,
    last_micro_throughput,
    memory_breakdown,
    reduce_scatter_n_times,
    subgroup_bandwidth,
    hidden_lines,
    zero_stage_unknown,
    pipeline_reduction,
    host_time_on_gpu,
)
