"""Turns of RLHF: two clocks around each; the hybrid engine's speaks when the next begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsprof.run import Run
from tests.loaded import run_of_text

TURNS = range(1, 7)


def losses(turn: int) -> str:
    return (
        f"Epoch: 0 | Step: {turn} | PPO Epoch: 1 | Actor Loss: {turn}.5 | Critic Loss: 0.25 "
        "| Unsupervised Loss: 0.0\n"
    )


def own_clock(turn: int) -> str:
    """Generation of 6 s, training of 3 s and a tenth for each turn."""
    return (
        f"End-to-End => Latency: {9 + turn / 10:.2f}s, TFLOPs: 20.00, Samples/sec: 3.50, "
        "Time/seq 0.28s, Batch Size: 32, Total Seq. Length: 512\n"
        "Generation => Latency: 6.00s, Per-token Latency 23.44 ms, TFLOPs: 2.00, "
        "BW: 500.00 GB/sec, Answer Seq. Length: 256\n"
        f"Training   => Latency: {3 + turn / 10:.2f}s, TFLOPs: 60.00\n"
    )


def engines_clock(turn: int) -> str:
    """Printed when the next turn begins: half a second of gathering, 1.5 s of all others."""
    return (
        f"|E2E latency={11 + turn / 10:.2f}s |Gather latency=0.50s (4.5%) "
        f"|Generate time=5.50s (50.00%) |Training time={4 + turn / 10:.2f}s (36.00%) "
        "|Others=1.50 (13.00%)|CurSamplesPerSec=3.20 |AvgSamplesPerSec=3.10\n"
    )


def seconds(run: Run, step: int) -> dict[str, float]:
    of_step = run.phases[run.phases["step"] == step]
    told = zip(of_step["name"], of_step["self_seconds"].round(3), strict=True)
    return {str(name): float(value) for name, value in told}


def test_the_hybrid_engine_tells_of_the_turn_whose_losses_were_printed_last() -> None:
    run = run_of_text(*(line for n in TURNS for line in (losses(n), engines_clock(n))))
    assert run.steps["seconds"].round(2).to_list() == [11 + n / 10 for n in TURNS]
    assert seconds(run, 4) == {"generate": 5.5, "train": 4.4, "others": 1.0, "gather": 0.5}


def test_of_two_clocks_around_a_turn_that_of_the_hybrid_engine_counts() -> None:
    lines = ((losses(n), own_clock(n), engines_clock(n)) for n in TURNS)
    run = run_of_text(*(line for turn in lines for line in turn))
    assert run.steps["seconds"].round(2).to_list() == [11 + n / 10 for n in TURNS]
    assert seconds(run, 4) == {"generate": 5.5, "train": 4.4, "others": 1.0, "gather": 0.5}
    assert run.repairs.empty


def test_without_a_hybrid_engine_the_clock_of_deepspeed_chat_counts() -> None:
    run = run_of_text(*(line for n in TURNS for line in (losses(n), own_clock(n))))
    assert seconds(run, 4) == {"generate": 6.0, "train": 3.4}
    assert run.steps["seconds"].round(2).to_list() == [9 + n / 10 for n in TURNS]


@pytest.mark.parametrize("clock", [own_clock, engines_clock])
def test_what_several_ranks_exchange_in_a_turn_is_not_called_compute(
    clock: Callable[[int], str],
) -> None:
    run = run_of_text(*(line for n in TURNS for line in (losses(n), clock(n))))
    assert set(run.phases.loc[run.phases["mixed"], "name"]) == {"generate", "train"}
    assert run.steps["compute"].isna().all()


def engine_line(milliseconds: float) -> str:
    """Of one optimizer step of one engine."""
    return (
        "[2024-05-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | "
        f"fwd: {milliseconds:.2f} | bwd: {2 * milliseconds + 30:.2f} "
        f"| bwd_inner: {2 * milliseconds:.2f} | bwd_allreduce: 30.00 | step: 20.00\n"
    )


def engines_mark(step: int, lr: str) -> str:
    return (
        "[2024-05-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] "
        f"step={step}, skipped=0, lr=[{lr}], mom=[(0.9, 0.95)]\n"
    )


def engines_turn(turn: int, updates: int = 1) -> str:
    """Actor and critic step once each update; every second step of theirs is marked."""
    told = ""
    for update in range(updates):
        step = (turn - 1) * updates + update + 1
        for milliseconds, lr in ((300.0, "1e-05"), (100.0, "5e-06")):
            told += engines_mark(step, lr) if step % 2 == 0 else ""
            told += engine_line(milliseconds)
    return told + losses(turn)


@pytest.mark.parametrize("clocks", [[engines_clock], [own_clock, engines_clock]])
def test_a_turn_is_one_step_and_what_its_engines_time_is_part_of_it(
    clocks: list[Callable[[int], str]],
) -> None:
    run = run_of_text(*(engines_turn(n) + "".join(clock(n) for clock in clocks) for n in TURNS))
    assert run.steps["step"].to_list() == list(TURNS)
    assert run.steps["seconds"].round(2).to_list() == [11 + n / 10 for n in TURNS]
    assert seconds(run, 4) == {
        "generate": 5.5, "gather": 0.5, "forward": 0.4, "backward": 0.0,
        "backward_inner": 0.8, "backward_allreduce": 0.06, "step": 0.04,
    }  # fmt: skip
    timed = run.steps.iloc[3][["compute", "communication", "optimizer", "other"]].sum()
    assert timed <= run.steps["seconds"].iloc[3]
    assert not run.repairs["name"].isin(["phases-exceed-step", "timers-contradict"]).any()


def test_beside_the_timers_of_engines_the_training_of_a_turn_says_nothing_more() -> None:
    run = run_of_text(*(engines_turn(n) + own_clock(n) for n in TURNS))
    assert "train" not in seconds(run, 4)
    assert run.steps["seconds"].round(2).to_list() == [9 + n / 10 for n in TURNS]


def test_several_updates_in_a_turn_are_summed() -> None:
    run = run_of_text(*(engines_turn(n, updates=3) + engines_clock(n) for n in TURNS))
    assert run.steps["step"].to_list() == list(TURNS)
    of_turn = run.phases[run.phases["step"] == 4].set_index("name")
    assert of_turn.loc["forward", "seconds"] == pytest.approx(3 * 0.4)
    assert of_turn.loc["forward", "count"] == 6
    assert not run.counted


def test_what_an_engine_accumulates_over_turns_is_shared_by_them() -> None:
    """A step of the engine in every second turn, of a micro-batch each."""

    def turn(n: int) -> str:
        micro = engine_line(300.0)
        for timer in ("fwd", "bwd", "bwd_inner", "bwd_allreduce", "step"):
            micro = micro.replace(f" {timer}:", f" {timer}_microstep:")
        return micro + (engine_line(600.0) if n % 2 == 0 else "") + losses(n) + engines_clock(n)

    run = run_of_text(*(turn(n) for n in TURNS))
    forward = run.phases.loc[run.phases["name"] == "forward", "seconds"]
    assert forward.round(3).to_list() == [0.3] * len(TURNS)


def test_the_rate_of_an_engine_is_not_that_of_its_turn() -> None:
    rate = (
        "[2024-05-01 10:00:00,000] [INFO] [timer.py:199:stop] epoch=0/micro_step=2/global_step=2, "
        "RunningAvgSamplesPerSec=80.5, CurrSamplesPerSec=81.5, MemAllocated=1.0GB, "
        "MaxMemAllocated=2.0GB\n"
    )
    run = run_of_text(*(engines_turn(n).replace("Epoch: 0", rate + "Epoch: 0") for n in TURNS))
    assert run.steps["samples_per_second"].isna().all()
    assert run.steps["step"].to_list() == list(TURNS)


def test_turns_are_counted_on_over_epochs_within_one_launch() -> None:
    def turn(epoch: int, step: int) -> str:
        told = losses(step).replace("Epoch: 0 |", f"Epoch: {epoch} |")
        return told + engines_clock(step)

    begin = "Beginning of Epoch {}/3, Total Generation Batches 5\n"
    epochs = (begin.format(e + 1) + "".join(turn(e, n) for n in range(5)) for e in range(3))
    run = run_of_text(*epochs)
    assert run.steps["segment"].unique().tolist() == [0]
    assert run.steps["step"].to_list() == list(range(15))


def test_the_same_epoch_again_is_another_launch() -> None:
    first = [losses(n) + engines_clock(n) for n in TURNS]
    again = [turn.replace(".5 |", ".25 |") for turn in first]
    run = run_of_text(*first, *again)
    assert run.steps["segment"].to_list() == [0] * 6 + [1] * 6
    assert run.steps["step"].to_list() == [*TURNS, *TURNS]


def test_steps_trained_before_the_turns_of_one_log_stay_steps() -> None:
    trained = "".join(engines_mark(n, "1e-05") + engine_line(50.0) for n in range(1, 9))
    launch = (
        "[2024-05-01 10:05:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: "
        "version=0.15.3, git-hash=unknown, git-branch=unknown\n"
    )
    run = run_of_text(trained, launch, *(engines_turn(n) + engines_clock(n) for n in TURNS))
    assert run.steps.groupby("segment")["step"].agg(list).to_list() == [
        list(range(1, 9)),
        list(TURNS),
    ]
    first = run.steps[run.steps["segment"] == 0]
    assert first["seconds"].round(3).eq(0.2).all()  # 50 + 130 + 20 ms


def test_turns_that_only_the_hybrid_engine_tells_of_are_steps_and_counted() -> None:
    run = run_of_text(*(engines_turn(n).replace(losses(n), "") + engines_clock(n) for n in TURNS))
    assert run.steps["seconds"].round(2).to_list() == [11 + n / 10 for n in TURNS]
    assert run.steps["engine"].eq(0).all()
    assert seconds(run, 4)["forward"] == 0.4


def test_what_a_turn_spends_on_communication_is_said_of_all_timers_that_show_it() -> None:
    def gathering(turn: int) -> str:
        return (
            engines_clock(turn)
            .replace("latency=0.50s (4.5%)", "latency=3.50s (31.00%)")
            .replace("Others=1.50 (13.00%)", "Others=4.00 (36.00%)")
        )

    run = run_of_text(*(engines_turn(n) + gathering(n) for n in range(1, 30)))
    found = next(one for one in run.findings if one.rule == "communication-bound")
    assert found.summary.startswith("gather and backward_allreduce alone take 3.56 s per step")
    left = next(one for one in run.findings if "no timer" in one.title)
    assert "scoring what was generated" in left.summary


def test_the_rate_that_is_stated_of_batches_is_the_usual_one_not_that_of_an_epoch_s_last() -> None:
    line = (
        "Model Parameters: 1.250 B, Latency: 0.50s, TFLOPs: 50.25, Samples/sec: {0}, "
        "Time/seq 0.06s, Batch Size: 8, Sequence Length: 512\n"
    )
    run = run_of_text(*(line.format(rate) for rate in (16.0, 16.5, 15.5, 16.0, 61.0)))
    said = run.findings[0].summary
    assert said.startswith("It states 5 rates, of 16 samples/s in the median.")
    assert "Each is of one rank's micro-batch." in said


def test_a_job_s_rate_is_not_that_of_one_rank_s_micro_batch() -> None:
    batch = (
        "Model Parameters: 0.331 B, Latency: {0}s, TFLOPs: {1}, Samples/sec: {2}, "
        "Time/seq 0.07s, Batch Size: 2, Sequence Length: 512\n"
    )
    lines = []
    for step, second in ((190, 43.403), (200, 50.356), (210, 57.247), (220, 64.2)):
        at = f"2025-01-02 15:{49 + int(second // 60)}:{second % 60:06.3f}".replace(".", ",")
        lines.append(
            f"[{at}] [INFO] [timer.py:264:stop] epoch=0/micro_step={2 * step}/global_step={step}, "
            "RunningAvgSamplesPerSec=46.6, CurrSamplesPerSec=46.3, MemAllocated=5.53GB, "
            "MaxMemAllocated=8.61GB\n"
        )
        lines += [batch.format(0.55, 0.51, 3.64), batch.format(0.14, 1.98, 14.10)]
    run = run_of_text(*lines)
    assert run.steps["samples_per_second"].tolist() == [46.3] * 4
    assert run.steps["tflops"].isna().all()
    assert "TFLOP/s" not in run.findings[0].title
