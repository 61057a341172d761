"""Every number a rule compares with. docs/diagnosis.md says where each comes from.

Shares are parts of an optimizer step, 0 to 1.
"""

from __future__ import annotations

from typing import Final

from dsprof.events import Severity

#: Rows that a statistic needs: below, the rule abstains. Shares need one window.
EVIDENCE_STEPS: Final = 20
#: Fewer printed steps than this call nothing healthy with high confidence.
FEW_STEPS: Final = 3
#: Part of the best possible gain that is promised at least.
GAIN_LOW: Final = 0.5

#: Less than this of a step: the timers do not see communication at all.
COMMUNICATION_SEEN: Final = 0.001
COMMUNICATION_WARNING: Final = 0.15
COMMUNICATION_CRITICAL: Final = 0.30
#: Measured over least possible seconds: up to the first the link is the limit,
#: from the second on it is not.
NEAR_MODEL: Final = 1.5
FAR_FROM_MODEL: Final = 3.0
#: Part of the communication time that waiting must explain to be named as the cause.
WAITING_EXPLAINS: Final = 0.50
#: Part of it from which on waiting is named although the rest stays unknown.
WAITING_WORTH_NAMING: Final = 0.25
#: The reduction may take that many times the gathering of as many parameters: gradients
#: in fp32 instead of fp16 (2) and an all-reduce instead of a reduce-scatter (2).
REDUCE_PER_GATHER: Final = 4.0

NO_OVERLAP_COMMUNICATION: Final = 0.20
#: Of large reductions that are seen to hold the step up: a switch hides them.
NO_OVERLAP_REDUCTION: Final = 0.10
OVERLAP_LOW: Final = 0.50
NO_OVERLAP_HIDEABLE: Final = 0.05

SLOW_LINK_WARNING: Final = 0.50
SLOW_LINK_CRITICAL: Final = 0.25
LINK_CALLS: Final = 5

SMALL_MESSAGES_SECONDS: Final = 0.50
SMALL_MESSAGES_SHARE: Final = 0.10
SMALL_MESSAGES_CALLS: Final = 10

GATHER_STALL_WARNING: Final = 0.05
GATHER_STALL_CRITICAL: Final = 0.30
#: Invalidated traces of ZeRO-3 over steps, and how many at least.
PREFETCH_BROKEN: Final = 0.10
PREFETCH_BROKEN_LEAST: Final = 5

PIPELINE_WARNING: Final = 0.15
PIPELINE_CRITICAL: Final = 0.30
#: Sending as a part of receiving the same bytes back, below which transfer is no cause.
TRANSFER_CHEAP: Final = 0.20
#: Micro-batches per stage that make the bubble small.
MICRO_BATCHES_PER_STAGE: Final = 4
#: Part of the communication from which on a second kind of waiting is named, too.
WORTH_NAMING: Final = 0.10
IMBALANCE_WARNING: Final = 0.10
IMBALANCE_CRITICAL: Final = 0.20

STRAGGLER_WARNING: Final = 0.10
STRAGGLER_CRITICAL: Final = 0.20
STRAGGLER_HELD: Final = 0.60
#: Of ranks that are last by chance some rank is it so often no more often than that.
STRAGGLER_CHANCE: Final = 0.01
#: Steps that every rank times: fewer are too near to each other to be told from one delay.
STRAGGLER_STEPS: Final = 10
#: Of more ranks one that is late now and then is named too, from that part of the steps on.
STRAGGLER_OFTEN: Final = 0.25
#: Standard errors by which it must be last more often than the next one.
STRAGGLER_ABOVE_CHANCE: Final = 4.0

#: Part of a GPU's samples in which something holds its clock down.
THROTTLED_WARNING: Final = 0.10
THROTTLED_CRITICAL: Final = 0.50

DATA_WARNING: Final = 0.10
DATA_CRITICAL: Final = 0.20
COMPUTE_BOUND: Final = 0.90
#: More than all else of a turn together.
GENERATION_WARNING: Final = 0.50
OPTIMIZER_WARNING: Final = 0.15
OPTIMIZER_CRITICAL: Final = 0.30
OFFLOAD_WARNING: Final = 0.15
OFFLOAD_CRITICAL: Final = 0.30
#: Part of an offloaded update that is saved at least where the states fit on the GPU.
OFFLOAD_SAVED: Final = 0.80
#: What a call costs the host altogether, of what it holds it up: buckets are filled and emptied
#: around it, and caches are cold behind it.
AROUND_CALLS: Final = 1.5
CHECKPOINT_WARNING: Final = 0.05
CHECKPOINT_CRITICAL: Final = 0.15
EVALUATION_WARNING: Final = 0.10
EVALUATION_CRITICAL: Final = 0.25
UNACCOUNTED_WARNING: Final = 0.10
UNACCOUNTED_CRITICAL: Final = 0.30

#: Steps whose timers do not fit them, of fewer of which a doubt is a note.
DOUBTED_STEPS: Final = 0.10

#: Part of a step that the device idles while the host waits for it.
SYNC_WARNING: Final = 0.03
SYNC_CRITICAL: Final = 0.15

#: Part of the time in which the thread that trains is ready to run and has no CPU.
CPU_WARNING: Final = 0.10
CPU_CRITICAL: Final = 0.30
#: Samples of its count, of fewer of which no rank is judged.
CPU_SAMPLES: Final = 5

#: Part of the time in which a rank collects Python's garbage.
GARBAGE_WARNING: Final = 0.05
GARBAGE_CRITICAL: Final = 0.20

#: Part of a step in which GPUs have no kernel to run though it is in a phase that computes.
HOST_BOUND_WARNING: Final = 0.10
HOST_BOUND_CRITICAL: Final = 0.30
#: Part of the forwards, of this many at least, that the GPU ends together with the host.
HOST_BOUND_TOGETHER: Final = 0.90
HOST_BOUND_FORWARDS: Final = 20
#: Samples of how busy GPUs are, of fewer of which no mean is told.
HOST_BOUND_SAMPLES: Final = 5

MEMORY_WARNING: Final = 0.92
MEMORY_CRITICAL: Final = 0.97
GROWTH_BYTES: Final = 1 << 30
GROWTH_SHARE: Final = 0.06
GROWTH_STEPS: Final = 20
GROWTH_RISING: Final = 0.80
#: Less growth, or fewer readings, are worth a note where it never stops.
GROWTH_NOTED_BYTES: Final = 256 << 20
GROWTH_NOTED_STEPS: Final = 12
GROWTH_LATE: Final = 0.35
THRASH_WARNING: Final = 1
THRASH_NOTED: Final = 0.01
THRASH_CRITICAL: Final = 0.10

OVERFLOW_STEPS: Final = 3
OVERFLOW_WARNING: Final = 0.05
OVERFLOW_CRITICAL: Final = 0.25
#: Steps up to the last one, all skipped: no scale is found any more.
OVERFLOW_STREAK: Final = 10
#: Records of the Trainer with one learning rate: its schedule does not go on.
RATE_STANDSTILL: Final = 5
#: A loss scale from which on a scaler that has found none yet is still looking for it.
OVERFLOW_SCALE: Final = 2.0**16
#: One that holds, as later steps show, and is far enough from 1 to fall further.
OVERFLOW_HELD: Final = 2.0**10

#: Records after one that is not finite, none of them finite: what is trained from there is lost.
LOST_RECORDS: Final = 5
#: Times the level before, from which on a loss has left it.
DIVERGED_TIMES: Final = 1.5
#: Records that a loss is compared with.
DIVERGED_RECORDS: Final = 50
#: Training has hardly begun up to this step.
EARLY_STEP: Final = 1000

#: Epoch before which a record is of its beginning, where no line numbers its step.
EARLY_EPOCH: Final = 0.1
#: Times what the training's bar counts of a step, from which on the few that it times are unlike.
UNLIKE_BAR: Final = 2.0
#: A learning rate below which Adam's step is lost in the rounding of any weight, also in fp32.
HARDLY_A_RATE: Final = 1e-9

SPIKE_RATIO: Final = 1.5
SPIKES_WARNING: Final = 0.05
SPIKES_CRITICAL: Final = 0.15
#: Standard errors by which a rank must be last in them more often than the next one.
SPIKES_ABOVE_CHANCE: Final = 2.0
SLOWDOWN_WARNING: Final = 0.10
SLOWDOWN_CRITICAL: Final = 0.25
#: The noise of a run makes no such rise more often than that, when its steps are shuffled.
SLOWDOWN_CHANCE: Final = 0.05
#: Above the old level by less than this part of the rise: the slowdown has not begun yet.
SLOWDOWN_BEGUN: Final = 0.10
#: Above the old level by less than this part of the rise: the slowdown is over.
SLOWDOWN_RECOVERED: Final = 0.50
#: Times the least of their rises, up to which all are alike, as those of a timer never reset.
RISES_ALIKE: Final = 1.25
#: So many times what others took is told of the last steps, or of one, however few are timed.
MUCH_SLOWER: Final = 3.0
#: So many times the first of a few that rise one after another, the last is told beside it.
RISEN_BY: Final = 2.0

#: Seconds of waiting for a process that DeepSpeed's launcher ends: up to the first it was dead
#: already, from the second on it was not.
DEAD_WAIT: Final = 0.005
ENDING_WAIT: Final = 0.01


def grade(measure: float, warning: float, critical: float) -> Severity | None:
    """The severity of a measure that is bad when large; None below `warning`."""
    if measure >= critical:
        return Severity.CRITICAL
    return Severity.WARNING if measure >= warning else None
