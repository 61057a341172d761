"""Seconds of a step from progress bars: only from the training's, only as sure as a bar is."""

from __future__ import annotations

from pathlib import Path

import pytest

import dsprof
from dsprof.run import Run
from dsprof.run.steps.evaluations import evaluations_told
from dsprof.text.overview import overview
from tests.loaded import run_of_text

BANNER = "***** Running training *****\n  Total optimization steps = %d\n"


def bar(count: int, total: int, elapsed: int) -> str:
    clock = f"{elapsed // 60:02}:{elapsed % 60:02}"
    return f" {count * 100 // total:2}%|██    | {count}/{total} [{clock}<59:59,  1.00s/it]"


def loss(epoch: float) -> str:
    return f"{{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': {epoch}}}\n"


def seconds(run: Run) -> dict[int, float]:
    told = run.steps.dropna(subset="seconds")
    assert set(told["seconds_from"].astype("str")) <= {"bar"}
    return dict(zip(told["step"].astype(int), told["seconds"].round(6), strict=True))


def trained(total: int, places: list[tuple[int, int]]) -> str:
    return "".join(f"{bar(n, total, at)}{loss(n / total)}" for n, at in places)


PLACES = [(10, 14), (20, 24), (30, 34), (50, 84)]
TOLD = {20: 1.0, 30: 1.0, 50: 2.5}


def test_the_bars_beside_the_trainers_dicts_tell_how_long_a_step_takes() -> None:
    assert seconds(run_of_text(trained(500, PLACES))) == TOLD


@pytest.mark.parametrize("banner", ["", BANNER % 9000])
@pytest.mark.parametrize(
    ("drawn", "steps"),
    [
        ([99, 200, 298], [100, 200, 300]),
        ([99, 199, 299], [99, 199, 299]),  # always one: perhaps a loop that counts from zero
        ([99, 200, 240], [99, 200, 240]),  # too late to be sure
    ],
)
def test_a_bar_that_is_drawn_too_seldom_for_a_quick_loop_numbers_records_by_their_distance(
    banner: str, drawn: list[int], steps: list[int]
) -> None:
    places = [
        (n + 300 * turn, turn * 60 + 10 * i) for turn in range(4) for i, n in enumerate(drawn)
    ]
    told = run_of_text(banner + trained(9000, places)).steps
    assert told["step"].tolist() == [n + 300 * turn for turn in range(4) for n in steps]


def test_a_record_that_says_how_long_training_lasted_is_as_good_as_its_bar() -> None:
    record = (
        '{{"current_steps": {}, "total_steps": 500, "loss": 1.5, "epoch": 0.5, '
        '"elapsed_time": "0:00:{:02}", "remaining_time": "1 day, 0:00:05"}}\n'
    )
    short = [(n, at) for n, at in PLACES if at < 60]
    told = run_of_text("".join(record.format(*place) for place in short))
    assert seconds(told) == {20: 1.0, 30: 1.0}


def test_the_bar_as_long_as_the_training_is_the_trainings() -> None:
    others = bar(9, 900, 400) + "\n" + bar(1, 8, 401) + "\n"
    assert seconds(run_of_text(BANNER % 500 + others + trained(500, PLACES))) == TOLD


def steps_bar(count: int, total: int, elapsed: int) -> str:
    return f"Steps: {bar(count, total, elapsed)[:-1]}, lr=1e-5, step_loss=0.125]\n"


def test_the_bar_of_a_script_that_says_how_many_steps_it_means_to_run_times_them() -> None:
    turns = "".join(steps_bar(n, 500, at) for n, at in PLACES)
    assert seconds(run_of_text(BANNER % 500 + turns)) == TOLD
    assert seconds(run_of_text(BANNER % 400 + turns)) == {}
    assert seconds(run_of_text(turns)) == {}


def tuned(epoch: int, step: int, count: int, elapsed: int) -> str:
    return f"{epoch}|{step}|Loss: 1.5: {bar(count, 500, elapsed)}\n"


def test_bars_of_torchtune_time_the_steps_that_their_titles_name() -> None:
    first = "".join(tuned(1, n, n, at) for n, at in PLACES)
    run = run_of_text(first)
    assert seconds(run) == TOLD
    assert run.meta["framework"] == "torchtune"
    assert run.steps["loss"].tolist() == [1.5] * 4


def test_a_bar_of_torchtune_that_moved_before_its_title_did_is_not_taken_for_that_step() -> None:
    moved = "".join(tuned(1, n - 1, n, at) + tuned(1, n, n, at) for n, at in PLACES)
    assert seconds(run_of_text(moved)) == TOLD
    later = "".join(tuned(2, 500 + n, n, at) for n, at in PLACES)
    assert seconds(run_of_text("".join(tuned(1, n, n, at) for n, at in PLACES) + later)) == TOLD


def test_a_bar_of_kohyas_scripts_says_by_itself_that_it_counts_steps() -> None:
    """Beside others, such as the one that loads the data."""
    bars = [f"steps: {bar(n, 500, at)}".replace("]", ", avr_loss=0.125]\n") for n, at in PLACES]
    run = run_of_text(f"Map: {bar(400, 900, 99)}\n", *bars)
    assert seconds(run) == TOLD


def test_a_banner_that_scripts_on_accelerate_print_too_names_no_trainer() -> None:
    turns = "".join(steps_bar(n, 500, at) for n, at in PLACES)
    assert "framework" not in run_of_text(BANNER % 500 + turns).meta
    assert run_of_text(BANNER % 500 + trained(500, PLACES)).meta["framework"] == "huggingface"


def test_a_bar_of_another_length_than_the_training_tells_nothing() -> None:
    assert seconds(run_of_text(BANNER % 100 + trained(500, PLACES))) == {}


def test_whole_seconds_are_added_up_until_they_tell_something() -> None:
    places = [(10, 1), (20, 3), (30, 5), (40, 9), (50, 11), (60, 12)]
    assert seconds(run_of_text(trained(500, places))) == {50: 0.25}


def test_a_bar_that_starts_over_is_not_measured_against_the_one_before() -> None:
    text = trained(500, [*PLACES, (5, 20), (15, 40)])
    assert seconds(run_of_text(text))[15] == pytest.approx(2.0)


def test_a_last_bar_says_how_far_it_came_and_how_fast() -> None:
    run = run_of_text(BANNER % 500 + trained(500, PLACES) + bar(60, 500, 104))
    assert seconds(run) == TOLD | {60: 2.0}
    assert int(run.steps["step"].iloc[-1]) == 60


def test_a_bar_of_a_loop_of_ones_own_is_no_measure_of_a_step() -> None:
    line = "[2022-08-03 03:55:10,485] [INFO] [logging.py:69:log_dist] [Rank 0] "
    steps = [f"{bar(n, 80, n)}{line}step={n // 4}, skipped=0, lr=[1], mom=[1]\n"
             for n in range(20, 81, 20)]  # fmt: skip
    run = run_of_text("".join(steps))
    assert "bar" not in set(run.steps["seconds_from"].dropna().astype("str"))


def test_a_training_that_slows_down_is_noticed_by_its_bar() -> None:
    places = [(n, n if n <= 250 else 250 + 3 * (n - 250)) for n in range(10, 501, 10)]
    run = run_of_text(BANNER % 500 + trained(500, places))
    assert "slowdown" in {found.rule for found in run.findings}


def evaluated(seconds: str, name: str = "eval_runtime") -> str:
    return f"{{'eval_loss': 1.5, '{name}': {seconds}, 'epoch': 0.5}}\n"


def trained_with(evaluation: str) -> Run:
    """Ten seconds for ten steps each, and an evaluation of 30 s behind step 20."""
    front = "".join(f"{bar(n, 100, n + 4)}{loss(n / 100)}" for n in (10, 20))
    behind = "".join(f"{bar(n, 100, n + 34)}{loss(n / 100)}" for n in (30, 40))
    return run_of_text(BANNER % 100 + front + evaluation + behind)


@pytest.mark.parametrize("name", ["eval_runtime", "eval_maths_runtime"])
def test_an_evaluation_is_left_out_of_the_steps_of_a_bar_and_said_to_be(name: str) -> None:
    run = trained_with(evaluated("30.0", name))
    assert seconds(run) == {20: 1.0, 30: 1.0, 40: 1.0}
    said = run.repairs.set_index("name").loc["evaluations"]
    assert said["text"].startswith("evaluations took 30.0 s of the 60.0 s ")


def test_evaluations_of_several_data_sets_are_all_left_out() -> None:
    assert seconds(trained_with(evaluated("10.0") + evaluated("20.0"))) == {
        20: 1.0,
        30: 1.0,
        40: 1.0,
    }


@pytest.mark.parametrize("odd", ["45.0", "inf", "nan", "-3.0"])
def test_an_evaluation_that_cannot_be_leaves_no_wrong_step(odd: str) -> None:
    """One that took longer than the bar says passed drops what is around it."""
    told = seconds(trained_with(evaluated(odd)))
    assert told == ({20: 1.0, 40: 1.0} if odd == "45.0" else {20: 1.0, 30: 4.0, 40: 1.0})


def test_an_evaluation_before_the_first_bar_takes_nothing_from_any_step() -> None:
    text = BANNER % 100 + evaluated("30.0") + trained(100, [(10, 44), (20, 54), (30, 64)])
    run = run_of_text(text)
    assert seconds(run) == {20: 1.0, 30: 1.0}
    assert "evaluations" not in set(run.repairs["name"])


def test_the_mean_step_of_bars_at_unlike_distances_is_that_of_all_their_steps() -> None:
    """Ten steps of a second, then thirty of half a second."""
    run = run_of_text(BANNER % 100 + trained(100, [(10, 10), (20, 20), (50, 35)]))
    assert seconds(run) == {20: 1.0, 50: 0.5}
    assert run.steps["covers"].dropna().tolist()[-2:] == [10, 30]
    assert overview(run).seconds == pytest.approx(25 / 40)
    assert overview(run).median == pytest.approx(0.75)  # of the rows that are told
    assert run.judged[0].step_seconds == pytest.approx(25 / 40)


def test_a_bar_drawn_again_when_its_step_has_been_saved_leaves_that_to_the_next_step() -> None:
    before = trained(100, [(10, 10), (20, 19)]) + f"{bar(20, 100, 60)}\n"
    behind = trained(100, [(30, 70), (40, 80), (100, 140)]) + bar(100, 100, 200)
    assert seconds(run_of_text(BANNER % 100 + before + behind)) == {30: 3.0, 40: 1.0, 100: 1.0}


def test_a_bar_times_no_records_that_it_does_not_number(tmp_path: Path) -> None:
    """Its turns are steps; which of them the records are of, nobody says."""
    (tmp_path / "run.log").write_text(
        "  Total optimization steps = 100\n"
        "  0%|          | 0/100 [00:00<?, ?it/s]\n"
        "{'loss': 2.5, 'epoch': 1.0}\n"
        "100%|##########| 100/100 [04:11<00:00,  2.27s/it]\n"
    )
    run = dsprof.load(tmp_path / "run.log")
    assert run.counted
    assert run.steps["step"].tolist() == [1]
    assert run.steps["seconds"].isna().all()


def test_a_bar_behind_the_record_of_its_step_times_the_steps_between_two() -> None:
    bar = "%3d%%|#   | %d/100 [00:%02d<09:00,  1.50s/it]\n"
    told = [(0, 0, 10), (10, 30, 20), (20, 45, 30), (30, 59, 40)]
    text = "".join(bar % (n, n, s) + f"{{'loss': 1.5, 'epoch': {of / 50}}}\n" for n, s, of in told)
    steps = run_of_text(text).steps.set_index("step")["seconds"]
    assert steps.dropna().to_dict() == {10: 3.0, 20: 1.5, 30: 1.4}


@pytest.mark.parametrize("speaker", ["node{}: ", ""])
def test_an_evaluation_that_the_first_rank_of_each_node_tells_of_is_one(speaker: str) -> None:
    def said(text: str) -> str:
        return "".join(f"{speaker.format(node)}{text}" for node in (1, 2, 3))

    def evaluated(node: int) -> str:
        who = speaker.format(node)
        return f"{who}{{'eval_loss': 1.25, 'eval_runtime': 30.0{node}, 'epoch': 0.6}}\n"

    log = BANNER % 50
    for count, at in [(10, 14), (20, 24), (30, 34), (40, 74), (50, 84)]:
        log += said(f"{bar(count, 50, at)}{loss(count / 50)}")
        log += "".join(evaluated(node) for node in (1, 2, 3)) * (count == 30)
    run = run_of_text(log)
    assert len(evaluations_told(run.told)) == 1
    assert seconds(run) == {20: 1.0, 30: 1.0, 50: pytest.approx(1.0, abs=0.01)}


def test_one_that_is_made_again_behind_the_end_of_the_training_is_another() -> None:
    again = "{'eval_loss': 1.25, 'eval_runtime': 30.0, 'epoch': 1.0}\n"
    over = "{'train_runtime': 90.0, 'train_loss': 1.5, 'epoch': 1.0}\n"
    log = BANNER % 50 + trained(50, PLACES) + again + over + again
    assert len(evaluations_told(run_of_text(log).told)) == 2
