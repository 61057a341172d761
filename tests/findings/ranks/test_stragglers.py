"""Ranks that make the others wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsprof.analysis.ranks import straggler
from dsprof.events import Severity
from dsprof.findings import findings_of
from dsprof.findings.facts import facts_of
from dsprof.findings.ranks.late_ranks import node, stands_out
from dsprof.recording.writer import Writer
from dsprof.run import Run, load
from tests.findings.plants import (
    Row,
    alone,
    call,
    config,
    memory_breakdown,
    metric,
    phase,
    quiet,
    run_of,
    steps,
    why,
)
from tests.live.jobs import Job
from tests.recording.recorded import MS

_ELSEWHERE = "check it, or leave it out of the hostfile"


def ranks(count: int, slow: int, late: float, every: int = 1) -> list[Row]:
    """4 ranks; in every n-th step one of them is late and the others wait for it."""
    rows = steps(count, {}, 1.0)
    for step in range(1, count + 1):
        for rank in range(4):
            behind = late if step % every == 0 else 0.0
            own = behind if rank == slow else 0.0
            rows += [
                phase("data", step, 0.05 + own, rank),
                phase("forward", step, 0.25, rank),
                phase("backward_inner", step, 0.5, rank),
                phase("backward_allreduce", step, 0.2 + behind - own, rank),
            ]
    return rows


def test_who_is_long_where_reduction_hides_may_be_the_one_that_waits() -> None:
    """Rank 1 is late in forward; nothing times the all-reduce in which rank 0 waits for it."""
    rows = steps(30, {}, 1.0)
    for step in range(1, 31):
        rows += [phase("forward", step, 0.1, 0), phase("forward", step, 0.1, 1)]
        rows += [phase("backward", step, 0.8, 0), phase("backward", step, 0.3, 1)]
    assert "may itself be waiting for the others" in (
        why(run_of(rows, world_size=2), "straggler-rank") or ""
    )


def _counted(unseen: int) -> list[Row]:
    """What PyTorch counted of collectives, of which rank 1 saw some less."""
    counts = {"issued": (76, 76), "seen": (76, 76 - unseen)}
    return [
        config(f"collectives_{name}", of_ranks[rank]) | {"rank": rank}
        for name, of_ranks in counts.items()
        for rank in (0, 1)
    ]


@pytest.mark.parametrize("unseen", [0, 2, 30, 76])
def test_who_may_wait_where_nobody_saw_the_collectives_is_not_accused(unseen: int) -> None:
    """DDP issues 2 from C++ at its beginning; tensor parallelism some in every step."""
    run = run_of([*ranks(30, 2, 0.25), *_counted(unseen)], world_size=4)
    if unseen < 30:
        assert alone(run, "straggler-rank").ranks == (2,)
    else:
        said = why(run, "straggler-rank") or ""
        assert "may itself be waiting for the others" in said
        assert f"issued {unseen} collectives that its recording did not see" in said


def test_the_late_rank_and_its_phase_are_named() -> None:
    run = run_of([{"kind": "config", "name": "x", "rank": 2, "host": "w1"}, *ranks(30, 2, 0.15)])
    found = alone(run, "straggler-rank")
    assert found.ranks == (2,)
    assert found.phase == "data"
    assert found.seconds_per_step == pytest.approx(0.15)
    assert found.severity is Severity.WARNING
    assert found.title == "The others wait for rank 2 on w1, 15 % of each step"
    assert found.evidence[0].text == "rank 2, step 30, data: 200 ms"
    assert [(each.setting, each.to) for each in found.advice] == [
        ("DataLoader(num_workers=...)", "2 to 4 a rank, if it has fewer"),
        ("the node of rank 2 (w1)", "check it, or leave it out of the hostfile"),
    ]


def test_what_the_others_lose_elsewhere_is_told_beside_what_a_late_rank_does() -> None:
    """Rank 2 loads 250 ms longer; 60 ms of that the others compute longer before all meet."""
    rows = ranks(30, 2, 0.25)
    for row in rows:
        if row.get("rank") not in {2, None} and row["name"] in {"forward", "backward_allreduce"}:
            row["seconds"] += 0.06 if row["name"] == "forward" else -0.06
    found = alone(run_of(rows), "straggler-rank")
    assert found.seconds_per_step == pytest.approx(0.19)
    assert "arrives 190 ms per step after the median rank" in found.summary
    assert (
        "60.0 ms of that are not in its delay: the others work longer elsewhere." in found.summary
    )
    assert found.gain == pytest.approx((0.1805, 0.1995))


def test_ranks_that_wait_for_each_other_in_turns_of_a_step_each_cost_all_of_their_delay() -> None:
    rows = []
    for row in ranks(30, 2, 0.15):
        rows.append(row)
        if row["name"] == "backward_allreduce":  # then the others update 100 ms longer
            row["seconds"] -= 0.12
            late = row["rank"] == 2
            rows.append(phase("optimizer_step", row["step"], 0.01 if late else 0.11, row["rank"]))
            rows.append(
                phase("optimizer_allgather", row["step"], 0.11 if late else 0.01, row["rank"])
            )
    found = alone(run_of(rows), "straggler-rank")
    assert found.ranks == (2,)
    assert found.seconds_per_step == pytest.approx(0.15)
    assert found.gain == pytest.approx((0.1425, 0.1575))
    assert found.what_if == "rank 2 were not late"
    assert "In optimizer_allgather it is the other way round, 100 ms per step." in found.summary


def test_a_rank_that_is_late_in_several_phases_does_not_lose_most_outside_of_them() -> None:
    rows = ranks(30, 2, 0.15)
    for row in rows:
        if row.get("rank") == 2 and row["name"] in {"data", "forward"}:
            row["seconds"] += 0.06 if row["name"] == "forward" else -0.09
    summary = alone(run_of(rows), "straggler-rank").summary
    assert "It loses most in data and forward (120 ms per step)" in summary


def test_a_rank_that_is_much_later_in_a_few_steps_is_not_said_to_be_late_in_each() -> None:
    seldom, hardly = ranks(30, 2, 1.5, every=5), ranks(30, 2, 0.001)
    rows = [
        often if row["step"] % 5 else much
        for much, often in zip(seldom, hardly, strict=True)
        for row in (much,)
    ]
    assert alone(run_of(rows), "straggler-rank").title.endswith("of the time")


def test_of_two_ranks_the_one_that_waits_is_named_not_called_the_others() -> None:
    rows = [row for row in ranks(30, 1, 0.15) if row["rank"] in {0, 1}]
    found = alone(run_of(rows, world_size=2), "straggler-rank")
    assert found.title.startswith("Rank 0 waits for rank 1, ")
    assert "the others" not in found.summary


def test_the_node_to_be_checked_is_named_by_its_host_and_is_not_what_is_set_now() -> None:
    run = run_of([{"kind": "config", "name": "x", "rank": 2, "host": "w1"}, *ranks(30, 2, 0.15)])
    node = alone(run, "straggler-rank").advice[-1]
    assert (node.setting, node.now) == ("the node of rank 2 (w1)", "")


def test_a_job_on_cpus_has_no_gpu_to_be_checked() -> None:
    for slow in (ranks(30, 2, 0.15), groups((0, 0, 0.2, 0.2))):
        for on, named in (("cuda", True), ("cpu", False)):
            run = run_of(slow, world_size=4, accelerator=on)
            advice = alone(run, "straggler-rank").advice[-1]
            assert ("GPU" in advice.why) is named


@pytest.mark.parametrize(("nodes", "to"), [(1, "check it"), (2, _ELSEWHERE), (None, _ELSEWHERE)])
def test_a_job_on_one_host_is_not_advised_to_leave_it_out(nodes: int | None, to: str) -> None:
    told = [] if nodes is None else [config("nodes", nodes)]
    found = alone(run_of([*told, *ranks(30, 2, 0.15)]), "straggler-rank")
    assert found.advice[-1].to == to


def test_a_rank_that_is_late_outside_of_all_phases_is_looked_into_there(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    job.run(30, slow={1: 60}, timed=False)
    run = load(tmp_path)
    found = alone(run, "straggler-rank")
    looked = [each.setting for each in found.advice]
    assert looked == ["py-spy record", "the node of rank 1 (node-0)"]
    assert found.advice[0].to == "a minute of rank 1"
    assert found.gain == pytest.approx((0.057, 0.063))
    untimed = alone(run, "unaccounted-time")
    assert untimed.severity is Severity.INFO
    assert untimed.title == (
        "19 % of a step is explained by no timer, all of that on rank 1, for which the others wait"
    )
    assert untimed.advice == ()  # what to look into is said with the rank


def test_what_a_rank_loses_outside_of_phases_beside_a_longer_phase_is_of_it_too(
    tmp_path: Path,
) -> None:
    """Rank 1 computes 60 ms longer, and 50 ms lie before its forward: something slows down all."""
    for rank, own, beside in ((0, 40, 0), (1, 100, 50)):
        writer = Writer.create(tmp_path, {"rank": rank, "host": "a", "world": 2})
        forward, call = writer.name("forward", 0, "compute"), writer.name("all_reduce")
        for step in range(1, 31):
            at = step * 200 * MS
            meet = at + (beside + own) * MS
            writer.span(forward, at + beside * MS, meet, step)
            writer.collective(call, 0, meet, meet, at + 160 * MS - meet, step, -1, 64)
            writer.step(step, at, at + 160 * MS)
        writer.close()
    run = load(tmp_path)
    late = alone(run, "straggler-rank")
    assert late.seconds_per_step == pytest.approx(0.11)
    assert "It loses most in forward (60.0 ms per step)" in late.summary
    untimed = alone(run, "unaccounted-time")
    assert untimed.severity is Severity.INFO
    assert untimed.title == (
        "16 % of a step is explained by no timer, all of that on rank 1, for which the others wait"
    )


@pytest.mark.parametrize(
    ("op", "share"),
    [("all_to_all_single", "the data, or of the experts' tokens"), ("all_reduce", "the data")],
)
def test_a_rank_whose_experts_may_get_more_tokens_is_told_so(
    tmp_path: Path, op: str, share: str
) -> None:
    for rank, own in ((0, 20), (1, 60)):
        writer = Writer.create(tmp_path, {"rank": rank, "host": "a", "world": 2})
        forward = writer.name("forward", 0, "compute")
        call, whose = writer.name(op, forward), writer.name("0 ranks 0-1")
        for step in range(1, 31):
            at = step * 100 * MS
            writer.span(forward, at, at + 70 * MS, step)
            meet = at + own * MS
            writer.collective(call, whose, meet, meet, at + 70 * MS - meet, step, -1, 64)
            writer.step(step, at, at + 70 * MS)
        writer.close()
    advice = alone(load(tmp_path), "straggler-rank").advice[-1]
    assert advice.setting == "the node of rank 1 (a)"
    assert advice.why.endswith(f"or a larger share of {share}")


def test_a_recording_without_a_rank_proves_nothing_about_a_rank(tmp_path: Path) -> None:
    for rank, late in ((0, 1), (None, 0), (2, 20)):
        writer = Writer.create(tmp_path, {"rank": rank, "host": "a", "world": 3})
        forward, call = writer.name("forward", 0, "compute"), writer.name("all_reduce")
        for step in range(1, 31):
            at = step * 50 * MS
            writer.span(forward, at, at + 10 * MS, step)
            meet = at + (10 + late) * MS
            writer.collective(call, 0, meet, meet, (31 - late) * MS, step, -1, 64)
            writer.step(step, at, at + 41 * MS)
        writer.close()
    found = alone(load(tmp_path), "straggler-rank")
    assert [each.text for each in found.evidence] == [
        "rank 0, step 30, all_reduce: 30.0 ms", "rank 2, step 30, all_reduce: 11.0 ms",
    ]  # fmt: skip


def test_a_fifth_of_the_step_is_critical() -> None:
    assert alone(run_of(ranks(30, 1, 0.25)), "straggler-rank").severity is Severity.CRITICAL


def test_equal_ranks_are_no_finding() -> None:
    assert quiet(run_of(ranks(30, 0, 0.0)), "straggler-rank")


def test_a_rank_that_is_late_only_now_and_then_is_no_straggler() -> None:
    rows = ranks(30, 2, 0.0)
    for step in range(1, 31):  # each rank in turn
        rows.append(phase("data", step, 0.3, step % 4))
    assert quiet(run_of(rows), "straggler-rank")


def test_a_rank_that_alone_is_late_in_a_third_of_the_steps_is_named() -> None:
    rows = [row for row in ranks(90, 2, 0.6, every=3) if row["name"] != "step_seconds"]
    rows += [metric("step_seconds", step, 1.0 if step % 3 else 1.6) for step in range(1, 91)]
    found = alone(run_of(rows), "straggler-rank")
    assert found.ranks == (2,)
    assert found.seconds_per_step == pytest.approx(0.6 * 30 / 89)
    assert found.title.startswith("The others wait for rank 2, ")
    assert found.title.endswith(" of the time")
    assert "the last of 4 ranks in 34 % of 89 steps" in found.summary


def test_a_rank_that_chance_makes_last_a_little_more_often_is_none() -> None:
    rows = ranks(40, 2, 0.0)
    for step in range(1, 41):  # rank 2 in two of five, the others a fifth each
        rows.append(phase("data", step, 0.6, (2, 0, 2, 1, 3)[step % 5]))
    assert quiet(run_of(rows), "straggler-rank")


@pytest.mark.parametrize(
    ("last", "count", "named"), [(14, 18, False), (15, 18, True), (27, 39, False), (28, 39, True)]
)
def test_of_two_ranks_one_is_named_where_chance_hardly_makes_it_last_so_often(
    last: int, count: int, named: bool
) -> None:
    rows = [metric("step_seconds", step, 1.0) for step in range(1, count + 1)]
    for step in range(1, count + 1):
        for rank in (0, 1):
            late = 0.4 if rank == int(step <= last) else 0.0
            rows += [
                phase("forward", step, 0.3 + late, rank),
                phase("backward_allreduce", step, 0.7 - late, rank),
            ]
    found = straggler(run_of(rows, world_size=2).phases)
    assert found is not None
    assert (found.group, found.held) == ((1,), last / count)
    assert stands_out(found) is named


def test_too_few_steps_are_not_judged() -> None:
    assert "10 needed" in (why(run_of(ranks(10, 2, 0.3)), "straggler-rank") or "")


def test_one_rank_is_not_judged() -> None:
    run = run_of(steps(30, {"forward": 1.0}))
    assert "timers of fewer than two ranks" in (why(run, "straggler-rank") or "")


def test_stages_of_a_pipeline_are_not_compared() -> None:
    rows = [*ranks(30, 2, 0.3), *(phase("pipe_recv_grad", s, 0.1, 0) for s in range(1, 31))]
    assert "stages" in (why(run_of(rows), "straggler-rank") or "")


def _table(world_size: int, *, timed: bool = True, **settings: Any) -> Run:
    """Rank 0 waits for 90 % of the 0.4 s that it communicates in a step of 1 s."""
    rows = steps(3, {"forward": 0.6, "backward_allreduce": 0.4}) if timed else []
    return run_of([*rows, *_straggler_table(0.9, 0.1)], world_size=world_size, **settings)


def _straggler_table(waits: float, moves: float) -> list[Row]:
    told = {"comm_straggler": waits, "comm_fastest_rank": moves}
    return [
        call("all_reduce", 3, 1e6, seconds, name=name, kind="metric", text="all_reduce")
        for name, seconds in told.items()
    ]


def test_the_straggler_table_of_deepspeed_tells_waiting_from_moving() -> None:
    found = alone(_table(5, deepspeed_version="0.17.2"), "straggler-rank")
    assert found.title == "Rank 0 waits for a slower rank, at least 36 % of each step"
    assert found.gain == pytest.approx((0.18, 0.36))
    assert (found.ranks, found.confidence) == ((), "medium")
    assert findings_of(_table(5))[0].rule == "straggler-rank"


def test_a_straggler_table_of_which_less_than_half_is_waiting_names_none() -> None:
    rows = steps(3, {"forward": 0.6, "backward_allreduce": 0.4})
    for name, seconds in (("comm_straggler", 0.4), ("comm_fastest_rank", 0.6)):
        rows.append(
            call("all_reduce", 3, 1e6, seconds, name=name, kind="metric", text="all_reduce")
        )
    assert quiet(run_of(rows, world_size=5), "straggler-rank")


def test_the_straggler_table_of_the_last_launch_counts_from_its_start() -> None:
    table = [
        call("all_reduce", 3, 1e6, seconds, name=name, kind="metric", text="all_reduce", segment=of)
        for of in (0, 1)
        for name, seconds in (("comm_straggler", 0.9), ("comm_fastest_rank", 0.1))
    ]
    told = [row | {"segment": of} for of in (0, 1) for row in steps(3, {"backward_allreduce": 0.4})]
    found = alone(run_of([*told, *table], world_size=5), "straggler-rank")
    assert "says so of 900 ms of rank 0's calls so far" in found.summary


@pytest.mark.parametrize(
    ("version", "least"), [("", True), ("0.17.2", True), ("0.19.8", False), ("0.20.0", False)]
)
def test_waits_that_deepspeed_took_of_sorted_calls_are_lower_bounds(
    version: str, least: bool
) -> None:
    run = _table(5, deepspeed_version=version)
    found = alone(run, "straggler-rank")
    assert ("at least 36 %" in found.title) is least
    assert ("sorted by their duration" in found.summary) is least


def test_a_straggler_table_tells_how_much_of_communication_is_waiting_where_no_step_is_timed() -> (
    None
):
    found = alone(_table(5, timed=False), "straggler-rank")
    assert found.title == "Rank 0 waits for a slower rank, at least 90 % of its communication"
    assert found.severity is Severity.INFO
    assert (found.share, found.seconds_per_step, found.gain) == (None, None, None)
    assert "How long a step takes is unknown" in found.summary


def test_steps_whose_communication_is_unknown_are_not_called_untimed() -> None:
    table = _straggler_table(0.9, 0.1)
    found = alone(run_of([*steps(20, {}), *table], world_size=5), "straggler-rank")
    assert "How much of a step is communication is unknown" in found.summary
    assert "How long a step takes" not in found.summary


def test_of_two_ranks_the_one_that_does_not_wait_is_late() -> None:
    found = alone(_table(2, deepspeed_version="0.17.2"), "straggler-rank")
    assert (found.ranks, found.confidence) == ((1,), "high")


@pytest.mark.parametrize(("version", "sure"), [("0.18.2", "medium"), ("", "low")])
def test_a_straggler_table_that_may_hold_totals_is_not_trusted(version: str, sure: str) -> None:
    found = alone(_table(5, deepspeed_version=version), "straggler-rank")
    assert found.confidence == sure
    assert found.summary.count("confidence") == 1
    assert ("adds up totals" in found.summary) is (sure == "low")


def groups(late: tuple[float, ...], count: int = 30, *, hosts: str = "") -> list[Row]:
    """Ranks that each come so much later than the first one, which waits longest."""
    rows = steps(count, {}, 1.0)
    for rank, host in enumerate(hosts):
        rows.append(config("x", 1) | {"rank": rank, "host": f"w{host}"})
    for step in range(1, count + 1):
        for rank, behind in enumerate(late):
            mine = behind + 0.002 * ((step * (rank + 3)) % 5)
            rows += [
                phase("forward", step, 0.65 + mine, rank),
                phase("backward_allreduce", step, 0.25 - mine, rank),
            ]
    return rows


def test_ranks_that_are_late_together_are_named_as_a_group() -> None:
    found = alone(run_of(groups((0, 0, 0.2, 0.2)), world_size=4), "straggler-rank")
    assert found.title == "The others wait for ranks 2 and 3, 20 % of each step"
    assert found.ranks == (2, 3)
    assert found.seconds_per_step == pytest.approx(0.2, abs=0.005)
    assert found.gain is not None
    assert found.gain[0] <= 0.2 <= found.gain[1]
    assert found.summary.startswith("They are the last 2 of 4 ranks in 100 % of 29 steps and ")
    assert [one.setting for one in found.advice] == ["what ranks 2 and 3 have in common"]


def test_what_the_others_wait_for_a_group_is_not_communication_as_well() -> None:
    assert quiet(run_of(groups((0, 0, 0.2, 0.2)), world_size=4), "communication-bound")


@pytest.mark.parametrize(
    ("hosts", "where"),
    [
        ("0011", "ranks 2 and 3 on w1,"),
        ("0111", "ranks 2 and 3,"),
        ("0101", "ranks 2 and 3,"),
    ],
)
def test_a_host_is_named_where_all_its_ranks_are_late_and_no_other(hosts: str, where: str) -> None:
    found = alone(run_of(groups((0, 0, 0.2, 0.2), hosts=hosts), world_size=4), "straggler-rank")
    assert f"wait for {where} 20 % of each step" in found.title
    named = found.advice[-1].setting == "the node of ranks 2 and 3 (w1)"
    assert named is (hosts == "0011")


@pytest.mark.parametrize(
    "late",
    [
        (0, 0.2, 0.2, 0.2),  # one rank is early
        (0, 0.1, 0.2, 0.3),  # each is later than the one before
        (0, 0.2),
        (0, 0.2, 0.2),
    ],
)
def test_ranks_of_which_no_minority_is_apart_from_the_others_are_no_group(
    late: tuple[float, ...],
) -> None:
    found = straggler(run_of(groups(late), world_size=len(late)).phases)
    assert found is None or len(found.group) == 1


def test_of_a_group_the_one_that_chance_makes_last_more_often_is_not_named_alone() -> None:
    found = straggler(run_of(groups((0, 0, 0, 0.199, 0.2)), world_size=5).phases)
    assert found is not None
    assert found.group == (3, 4)


def test_where_single_ranks_send_to_each_other_uneven_work_is_advised_before_the_node() -> None:
    (run,) = facts_of(run_of(ranks(30, 3, 0.15), world_size=4))
    assert run.straggler is not None
    assert node(run, run.straggler).setting == "the node of rank 3"
    work = node(run, replace(run.straggler, meeting="recv"))
    assert (work.setting, work.to) == ("the work of rank 3", "even it out")


def test_ranks_that_are_late_in_turns_are_no_group() -> None:
    rows = steps(30, {}, 1.0)
    for step in range(1, 31):
        for rank in range(4):
            late = 0.2 if (rank + step) % 4 < 2 else 0.0
            rows += [
                phase("forward", step, 0.3 + late, rank),
                phase("backward_allreduce", step, 0.6 - late, rank),
            ]
    assert quiet(run_of(rows, world_size=4), "straggler-rank")


@pytest.mark.parametrize(("slow", "on", "told"), [(0, 1.0, True), (1, 1.0, False), (0, 0.0, False)])
def test_a_rank_that_collects_garbage_for_memory_breakdown_is_told_so(
    slow: int, on: float, *, told: bool
) -> None:
    """As the engine's own setting tells in a recording: no line does."""
    run = run_of([*ranks(30, slow, 0.4), config("memory_breakdown", on)], world_size=4)
    found = alone(run, "straggler-rank")
    assert found.title.endswith(": memory_breakdown collects garbage there") is told
    assert ("memory_breakdown" in {advice.setting for advice in found.advice}) is told


def test_the_rank_that_logs_its_memory_is_not_called_slow() -> None:
    """memory_breakdown collects garbage on rank 0 only, inside its backward."""
    rows = steps(30, {}, None)
    for step in range(1, 31):
        rows += memory_breakdown(step)
        for rank in range(2):
            own = 0.3 if rank == 0 else 0.0
            rows += [
                phase("forward", step, 0.2, rank),
                phase("backward", step, 0.5 + own, rank),
                phase("backward_inner", step, 0.4, rank),
                phase("backward_allreduce", step, 0.4 - own, rank),
                phase("step", step, 0.01, rank),
            ]
    run = run_of(rows, world_size=2)
    assert "late because of its own logging" in (why(run, "straggler-rank") or "")
