"""The verdicts of whole real logs."""

from __future__ import annotations

import pytest

from dsprof.events import Severity
from dsprof.findings import Finding, findings_of
from tests.loaded import SAMPLES, loaded


def findings(name: str) -> list[Finding]:
    return findings_of(loaded(SAMPLES / name))


def found(name: str, rule: str) -> Finding:
    return next(finding for finding in findings(name) if finding.rule == rule)


def test_the_seed_waits_for_gradients_and_not_for_bandwidth() -> None:
    verdict = findings("neox_pipeline_2023.log")[0]
    assert verdict.rule == "pipeline-bubble"
    assert verdict.severity is Severity.CRITICAL
    assert verdict.title.startswith(
        "76 % of a step is communication, and 94 % of that is stage 0 waiting for gradients"
    )
    assert "not the network's bandwidth; raise the number of micro-batches" in verdict.title
    assert verdict.phase == "pipe_recv_grad"
    # pipe_recv_grad 4.0923, 4.0997, 4.1039 and pipe_send_output 0.0083, 0.0093, 0.0085
    assert verdict.seconds_per_step == pytest.approx(4.1073, abs=1e-3)
    assert verdict.share == pytest.approx(4.1073 / 5.749, abs=1e-3)
    assert "(mean of 3 windows of 10 steps, printed at 20 to 40)" in verdict.summary
    assert "at most 8 micro-batches" in verdict.summary  # 1.38 samples/s x 5.8 s
    assert verdict.confidence != "high"  # neither stages nor micro-batches are in the log
    assert verdict.evidence[0].line == 20


def test_the_seed_skipped_18_steps() -> None:
    finding = found("neox_pipeline_2023.log", "overflow-streak")
    assert finding.title.startswith("18 of 40 steps were skipped")
    assert {row.line for row in finding.evidence} == {7, 14}


def test_a_log_without_timers_is_unknown() -> None:
    verdict = findings("deepspeed_pipeline_2023.log")[0]
    assert verdict.rule == "unaccounted-time"
    assert verdict.advice[0].setting == "wall_clock_breakdown"


def test_a_slow_peer_is_told_from_a_slow_network() -> None:
    verdict = findings("straggler_0.16.9.log")[0]
    assert (verdict.rule, verdict.ranks) == ("straggler-rank", (1,))


def test_a_slow_peer_shows_in_a_reduction_longer_than_the_gathering() -> None:
    verdict = findings("straggler_0.19.8.log")[0]
    assert verdict.rule == "communication-bound"
    assert "waiting for a slower rank" in verdict.title


def test_a_slow_last_stage_is_told_from_the_bubble() -> None:
    verdict = findings("pipeline_slow_last_0.16.9.log")[0]
    assert verdict.rule == "pipeline-imbalance"
    assert verdict.phase == "pipe_recv_grad"


def test_waiting_outside_all_timers_is_not_lost() -> None:
    verdict = findings("slow_data_0.19.8.log")[0]
    assert verdict.rule == "unaccounted-time"
    assert verdict.share is not None
    assert verdict.share > 0.5


@pytest.mark.parametrize("log", ["zero3_0.19.8.log", "zero3_offload_0.19.8.log"])
def test_zero_3_is_not_called_compute_bound_or_healthy(log: str) -> None:
    assert not {"healthy", "compute-bound"} & {finding.rule for finding in findings(log)}
    assert any("cannot tell" in finding.title for finding in findings(log))


@pytest.mark.parametrize(
    ("log", "rank"),
    [
        ("killed_rank_0.19.8.log", 1),
        ("killed_rank_zero_0.19.8.log", 0),
        ("killed_rank_torchrun_0.19.8.log", 1),
    ],
)
def test_a_killed_rank_is_the_verdict_and_is_named(log: str, rank: int) -> None:
    verdict = findings(log)[0]
    assert verdict.rule == "rank-died"
    assert verdict.title.startswith(f"Rank {rank} ")
    assert "SIGKILL" in verdict.title
    assert verdict.ranks == (rank,)


def test_a_taken_port_is_the_verdict() -> None:
    assert "port" in findings("port_in_use_0.19.8.log")[0].title


@pytest.mark.parametrize("log", sorted(path.name for path in SAMPLES.glob("*.log")))
def test_every_sample_gets_a_verdict_with_proof_or_advice(log: str) -> None:
    verdict = findings(log)[0]
    assert verdict.title
    assert not verdict.title.endswith(".")
    assert verdict.evidence or verdict.advice
    for finding in findings(log):
        assert "nan" not in finding.summary.lower().split()
        assert finding.confidence == "high" or f"{finding.confidence} confidence" in (
            finding.summary.lower()
        ), finding.summary


def test_where_four_rates_are_of_quicker_steps_the_mean_is_of_all_that_are_timed() -> None:
    """DeepSpeed's own mean rate since step 2, 5,853 samples/s at step 40, is 21.9 ms a step."""
    mean = findings("csv_monitor_0.16.9.log")[0]
    assert "of 22.4 ms (mean of 39 printed steps" in mean.summary
    assert found("csv_monitor_0.16.9.log", "step-spikes").steps == (33, 33)
    rest = found("csv_monitor_0.16.9.log", "unaccounted-time").summary
    assert "without the 1 that sticks out" in rest


def test_what_some_steps_cost_is_a_share_of_the_whole_step_not_of_its_timers() -> None:
    """The timers of a mean step sum to 21.7 ms, and it takes 27.3 ms."""
    for rule in ("slowdown", "step-spikes", "communication-bound"):
        one = found("torchrun_tee_0.19.8.log", rule)
        assert one.seconds_per_step, rule
        assert one.share, rule
        assert one.seconds_per_step / one.share == pytest.approx(0.0273, rel=0.01), rule


def test_of_one_step_that_sticks_out_the_summary_is_in_the_singular() -> None:
    assert found("torchrun_tee_0.19.8.log", "step-spikes").summary.startswith(
        "It takes 83.3 ms instead of 20.1 ms."
    )
