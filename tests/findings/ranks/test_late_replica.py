"""Ranks of a recorded pipeline that are late beside others of their stage."""

from __future__ import annotations

import pytest

from dsprof.findings.finding import Finding
from dsprof.findings.ranks.late_replica import late_replica
from dsprof.live.tables import ranks_of
from dsprof.page.ranks import rank_section
from dsprof.run import Run
from tests.findings.pipelines import FORWARD, UPDATE, pipeline
from tests.findings.plants import alone, one, rules

STAGES, EACH, MICRO_BATCHES = 2, 2, 4
PLANTED = 8  # ms longer, in each forward
ALIKE = (0.0,) * STAGES * EACH


def planted(*late: int, stage: float = 0.0, micro_batches: int = MICRO_BATCHES) -> Run:
    """Forwards of `late` ranks take longer; `stage`: those of all of stage 0, too, by so much."""
    forwards = [
        FORWARD + PLANTED * (rank in late) + stage * (rank < EACH) for rank in range(len(ALIKE))
    ]
    return pipeline(ALIKE, micro_batches, forwards, each=EACH)


def late(run: Run) -> Finding | None:
    return one(run, "straggler-rank") if "straggler-rank" in rules(run) else None


@pytest.mark.parametrize("rank", range(STAGES * EACH))
def test_a_rank_that_is_late_in_its_stage_is_named_with_what_that_costs(rank: int) -> None:
    """And nothing is said of its stage, whose other rank is as quick as those of the other.

    In stage 0 a forward is not waited for while the other stage still runs backward.
    """
    run = planted(rank)
    costs(run, planted())
    found = late(run)
    assert found is not None
    assert found.ranks == (rank,)
    assert found.title.startswith(f"The others wait for rank {rank} on worker-1 (stage {rank // 2}")
    assert found.confidence == "medium"
    assert f"Rank {rank} is the last of them in 100 % of 29 steps" in found.summary
    assert "It loses most in forward (32.0 ms per step)" in found.summary
    assert f"rank {rank}, step " in found.evidence[0].text
    assert f"rank {rank ^ 1}, step " in found.evidence[1].text, "the other one of its stage"
    assert not {"pipeline-imbalance", "communication-bound"} & set(rules(run))
    assert run.findings[0] == found


def test_as_late_ranks_of_several_stages_are_named_together() -> None:
    run = planted(1, 3)
    found = late(run)
    assert found is not None
    assert found.ranks == (1, 3)
    assert found.title.startswith("The others wait for ranks 1 and 3, ")
    assert "Ranks 1 and 3 are late beside others of their stages. Of the ranks of stage " in (
        rank_section(run).lead
    )


def test_a_stage_that_is_slow_on_all_its_ranks_is_uneven() -> None:
    run = planted(2, 3)
    assert late(run) is None
    assert one(run, "pipeline-imbalance").title.startswith("Stage 1 computes 32.0 ms a step more")


def test_a_late_rank_that_works_as_long_as_a_slower_stage_costs_hardly_anything() -> None:
    forwards = (FORWARD, FORWARD + PLANTED / 4, FORWARD + PLANTED, FORWARD + PLANTED)
    assert late(pipeline(ALIKE, forwards=forwards, each=EACH)) is None


def test_what_others_work_meanwhile_is_told_not_to_cost_anything() -> None:
    found = late(planted(3, stage=PLANTED / 2))
    assert found is not None
    assert "8.00 ms of that cost nothing: others work meanwhile." in found.summary


def costs(late_one: Run, usual: Run) -> None:
    """What is told is by how much the job without late ranks is quicker."""
    found = late(late_one)
    longer, seconds = (each.judged[0].step_seconds for each in (late_one, usual))
    assert found is not None
    assert longer is not None
    assert seconds is not None
    assert found.seconds_per_step == pytest.approx(longer - seconds, rel=0.02)


@pytest.mark.parametrize(
    ("ranks", "stage", "micro_batches"),
    [
        ((1, 3), 0, 4),  # of one replica: its first micro-batch is late twice
        ((1, 2), 0, 4),  # each of another replica
        ((3,), PLANTED / 2, 4),  # beside a slower stage: the first micro-batch is late all the same
        ((3,), PLANTED, 1),  # stages that work one after the other hide nothing
        ((3,), PLANTED, 4),
        ((1,), 0, 2),
    ],
)
def test_a_late_rank_costs_what_the_job_is_quicker_without_it(
    ranks: tuple[int, ...], stage: float, micro_batches: int
) -> None:
    run = planted(*ranks, stage=stage, micro_batches=micro_batches)
    usual = planted(stage=stage, micro_batches=micro_batches)
    costs(run, usual)


@pytest.mark.parametrize(
    ("rank", "slower"),
    [(0, 1), (2, None), (3, 0)],
    ids=[
        "a slower stage behind hides nothing of a late start",
        "until its input comes",
        "a slower stage before it, too",
    ],
)
def test_a_late_start_costs_what_the_job_is_quicker_without_it(
    rank: int, slower: int | None
) -> None:
    forwards = [FORWARD + 6 * (one // EACH == slower) for one in range(len(ALIKE))]
    pauses = [80 * (one == rank) for one in range(len(ALIKE))]
    run = pipeline(pauses, MICRO_BATCHES, forwards, each=EACH)
    costs(run, pipeline(ALIKE, MICRO_BATCHES, forwards, each=EACH))


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_late_update_costs_what_the_job_is_quicker_without_it(rank: int, *, clips: bool) -> None:
    """That of the last stage nothing until the first one has run backward, too, unless all ranks
    meet before they update.
    """
    updates = [UPDATE + 80 * (one == rank) for one in range(len(ALIKE))]
    run = pipeline(ALIKE, updates=updates, each=EACH, clips=clips)
    costs(run, pipeline(ALIKE, each=EACH, clips=clips))
    assert "communication-bound" not in rules(run), "the waiting for it is told once"


def test_what_several_ranks_are_late_by_is_not_added_up_where_others_wait_for_one_meanwhile() -> (
    None
):
    """One begins late, and one of another stage and replica computes longer."""
    pauses = (0, 32, 0, 0)
    forwards = (FORWARD, FORWARD, FORWARD + PLANTED, FORWARD)
    run = pipeline(pauses, forwards=forwards, each=EACH)
    found = late(run)
    assert found is not None
    assert found.ranks == (1, 2)
    costs(run, pipeline(ALIKE, each=EACH))


def test_a_rank_that_is_late_between_steps_is_named_with_the_place() -> None:
    found = late(pipeline((0, 40, 0, 0), each=EACH))
    assert found is not None
    assert found.ranks == (1,)
    assert found.seconds_per_step == pytest.approx(0.040, rel=0.02)
    assert "most between broadcast and the next forward (40.0 ms per step)" in found.summary
    assert found.advice[0].to == "a minute of rank 1"


def test_the_waiting_for_a_late_rank_is_told_once() -> None:
    """The bubble is as long as where no rank is late, and only that."""
    usual = planted(micro_batches=2)
    run = planted(1, micro_batches=2)
    bubbles = [alone(each, "pipeline-bubble").seconds_per_step for each in (usual, run)]
    assert bubbles == pytest.approx([0.012, 0.012], rel=0.02)
    assert "of the waiting are for rank 1: they are not counted here" in (
        alone(run, "pipeline-bubble").summary
    )


def test_late_input_of_one_rank_is_told_with_that_rank_and_how_to_load() -> None:
    run = pipeline(ALIKE, loads=(0, 80, 0, 0), each=EACH)
    costs(run, pipeline(ALIKE, each=EACH))
    found = one(run, "straggler-rank")
    assert (found.ranks, found.phase) == ((1,), "batch_input")
    assert found.advice[0].setting == "DataLoader(num_workers=...)"
    assert one(run, "data-bound").severity == "info"


@pytest.mark.parametrize(
    ("rule", "pause", "every", "since", "late"),
    [
        ("step-spikes", 600, 8, 1, "and cost 50 % of the time: rank 3 is late in them"),
        ("slowdown", 40, 1, 16, "a step takes 58 % longer: rank 3 is late"),
    ],
)
def test_steps_are_longer_for_a_rank_that_is_late_only_in_them(
    rule: str, pause: float, every: int, since: int, late: str
) -> None:
    run = pipeline((0, 0, 0, pause), every=every, since=since, each=EACH)
    found = alone(run, rule)
    assert late in found.title
    assert found.ranks == (3,)
    assert "rank 3 is the last of the 2 of its stage: it comes" in found.summary


def test_a_rank_that_waits_for_a_late_replica_in_collectives_alone_is_not_late() -> None:
    """Rank 1 waits for rank 3 in receives, rank 0, which is last by a hair, for rank 1 later on."""
    forwards = (FORWARD + 0.1, FORWARD, FORWARD, FORWARD + PLANTED)
    late = late_replica(pipeline(ALIKE, forwards=forwards, each=EACH).judged[0])
    assert late is not None
    assert late.ranks == (3,)


def test_the_page_and_the_live_screen_name_the_late_rank() -> None:
    run = planted(3)
    assert "Of the ranks of stage 1, which do the same, rank 3 comes last in 100 % of 29 steps" in (
        rank_section(run).lead
    )
    assert ranks_of(run, ()).sentence == (
        "ranks 0, 1 and 2 wait for rank 3: 32.0 ms per step, mostly in forward"
    )


@pytest.mark.parametrize(("stage", "micro_batches"), [(0, 2), (1, 2), (1, 3), (3, 4)])
def test_late_input_of_a_stage_costs_what_the_schedule_has_not_time_for(
    stage: int, micro_batches: int
) -> None:
    """The first stage runs forward ahead: of its input only the first part holds all others up."""
    loads = [40.0 * (one == stage) for one in range(4)]
    late = pipeline([0] * 4, micro_batches, loads=loads)
    usual = pipeline([0] * 4, micro_batches)
    longer, seconds = (run.judged[0].step_seconds for run in (late, usual))
    assert longer is not None
    assert seconds is not None
    gain = one(late, "data-bound").gain
    assert gain is not None
    assert gain[1] == pytest.approx(longer - seconds, rel=0.01)


@pytest.mark.parametrize("micro_batches", [2, 4])
@pytest.mark.parametrize("loads", [[20.0, 0.0, 0.0, 40.0], [40.0] * 4, [32.0, 0.0, 0.0, 32.0]])
def test_input_that_no_single_stage_waits_for_costs_what_a_step_without_it_is_quicker_by(
    loads: list[float], micro_batches: int
) -> None:
    late = pipeline([0] * 4, micro_batches, loads=loads)
    usual = pipeline([0] * 4, micro_batches)
    longer, seconds = (run.judged[0].step_seconds for run in (late, usual))
    assert longer is not None
    assert seconds is not None
    found = one(late, "data-bound")
    if "input data of stage" not in found.title:
        assert found.seconds_per_step == pytest.approx(longer - seconds, rel=0.02)
