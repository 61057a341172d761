"""Single steps as they ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsprof import load
from dsprof.analysis.lanes import lanes
from dsprof.page.contents import contents
from dsprof.page.lanes import RANKS, lanes_section
from dsprof.recording import THINNED, Writer
from tests.loaded import sample
from tests.recording.recorded import MS, header, record, record_pauses, write_steps


def test_a_step_as_long_as_most_is_drawn_rank_beside_rank(tmp_path: Path) -> None:
    section = lanes_section(load(record_pauses(tmp_path, {}, {"forward": 20})))
    (chart,) = section.charts
    assert chart.label.startswith("Step ")
    assert chart.label.endswith(", as long as most: 58.0 ms.")
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["rank 0", "rank 1"]
    assert chart.table is not None
    said = [[cell.text for cell in row] for row in chart.table.rows]
    assert ["0", "38.0 ms", "20.0 ms", "all_reduce"] in said
    assert ["1", "12.0 ms", "20.0 ms", "no phase"] in said


def test_the_longest_step_is_drawn_too_if_it_is_much_longer(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    write_steps(writer, 1, 29)
    forward = writer.name("forward", 0, "compute")
    writer.span(forward, 3000 * MS, 3400 * MS, 30)
    writer.step(30, 3000 * MS, 3500 * MS)
    writer.close()
    both = lanes_section(load(tmp_path)).charts
    assert [one.name for one in both] == ["lanes", "lanes-longest"]
    assert both[0].label.endswith(", as long as most: 100 ms.")
    assert both[1].label == "Step 30, the longest: 500 ms."


def test_ranks_that_did_not_end_the_step_are_named_as_left_out(tmp_path: Path) -> None:
    for rank, last in enumerate((8, 30, 30)):
        record(tmp_path, last, rank, world=3)
    (chart,) = lanes_section(load(tmp_path)).charts
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["rank 1", "rank 2"]
    assert chart.label.endswith(": 100 ms. Without rank 0, whose end of it is not recorded.")


def test_of_many_ranks_some_are_drawn_and_the_late_one_is_among_them(tmp_path: Path) -> None:
    late = 3
    record_pauses(tmp_path, *({"forward": 20 * (rank == late)} for rank in range(50)), steps=25)
    section = lanes_section(load(tmp_path))
    ranks = section.charts[0].figure["layout"]["yaxis"]["ticktext"]
    assert f"rank {late}" in ranks
    assert {"rank 0", "rank 49"} <= set(ranks)
    assert len(ranks) in {RANKS - 1, RANKS}
    assert f"{len(ranks)} of 50 ranks, evenly spread, with rank {late}." in section.words


@pytest.mark.parametrize(("most", "more"), [(8, "2 more are only drawn."), (10, "")])
def test_of_many_pieces_the_table_counts_those_that_it_does_not_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, more: str
) -> None:
    monkeypatch.setattr("dsprof.page.lanes._ROWS", most)
    (chart,) = lanes_section(load(record_pauses(tmp_path, {"forward": 5}, {"forward": 5}))).charts
    assert chart.table is not None
    assert (len(chart.table.rows), chart.table.more) == (most, more)


@pytest.mark.parametrize(
    ("hosts", "steps", "begin"),
    [("aa", 5, 7.0), ("ab", 5, 0.0), ("ab", 40, 7.0)],
)
def test_hosts_whose_clocks_are_not_known_begin_side_by_side(
    tmp_path: Path, hosts: str, steps: int, begin: float
) -> None:
    """Few steps are not enough to compare clocks."""
    for rank, host in enumerate(hosts):
        writer = Writer.create(tmp_path, header(rank, host=host))
        forward = writer.name("forward", 0, "compute")
        for step in range(1, steps + 1):
            at, end = (100 * step + 7 * rank) * MS, (100 * step + 60) * MS
            writer.span(forward, at, end, step)
            writer.step(step, at, end)
        writer.close()
    section = lanes_section(load(tmp_path))
    assert ("each from its own beginning" in section.words) == (begin == 0)
    table = section.charts[0].table
    assert table is not None
    rows = [[cell.text for cell in row] for row in table.rows]
    found = [row[1] for row in rows if row[3] == "forward"]
    assert found[0] == "0 ms"
    assert float(found[1].removesuffix(" ms")) == pytest.approx(begin, abs=0.1)


def test_gpus_are_drawn_each_from_its_own_beginning(tmp_path: Path) -> None:
    """What they did is known exactly; when they began by the host's clock, not always."""
    section = lanes_section(load(record_pauses(tmp_path, {"forward": 7}, {}, phases_on="gpu")))
    assert "each from its own beginning" in section.words
    assert "GPU" in section.words
    table = section.charts[0].table
    assert table is not None
    rows = [[cell.text for cell in row] for row in table.rows]
    assert ["0", "12.0 ms", "7.00 ms", "no phase"] in rows
    assert ["1", "38.0 ms", "7.00 ms", "all_reduce"] in rows
    assert {row[1] for row in rows if row[3] == "data"} == {"0 ms"}


def test_phases_that_no_gpu_was_seen_to_come_to_are_not_drawn(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    writer.config("phases_on", "gpu")
    forward, at = writer.name("forward", 0, "compute"), MS
    for step in range(1, 31):
        if step != 7:
            writer.span(forward, at, at + MS, step, -1, 5 * MS, gpu_begin_ns=at + 2 * MS)
        writer.step(step, at, at + 9 * MS)
        at += 9 * MS
    writer.span(forward, 7 * MS, 9 * MS, 7, -1, 2 * MS)
    writer.close()
    run = load(tmp_path)
    assert lanes(run.moments(run.steps[run.steps["step"] == 7])) == {}
    drawn = lanes(run.moments(run.steps[run.steps["step"] == 8]))
    assert [(one.path, one.begin // MS, one.end // MS) for one in drawn[0]] == [
        ("", 0, 2), ("forward", 2, 7), ("", 7, 9),
    ]  # fmt: skip


def test_a_recording_without_a_rank_is_not_drawn(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, {"host": "worker-1"})
    write_steps(writer, 1, 30)
    writer.close()
    assert lanes_section(load(tmp_path)).why == "The recording does not say of which rank it is."


def test_steps_whose_calls_share_rows_are_not_drawn(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header())
    for step in range(1, 30):
        write_steps(writer, step, step)
        if step % 8:
            gather = writer.name("all_gather")
            writer.collective(gather, 0, 0, 0, MS, step + 1, -1, 64, 9, 0, flags=THINNED)
    writer.close()
    drawn = lanes_section(load(tmp_path)).charts[0].label.split(",")[0]
    assert (int(drawn.removeprefix("Step ")) - 1) % 8 == 0


def test_a_step_is_drawn_whose_rows_are_not_deleted(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, header(world=1), keep_bytes=1 << 18)
    layers = [writer.name(f"layer{n}", 0, "compute") for n in range(40)]
    for step in range(1, 301):
        for number, layer in enumerate(layers):
            at = (step * 100 + number) * MS
            writer.span(layer, at, at + MS, step)
        end = (step * 100 + 40 + (step > 200)) * MS
        writer.step(step, step * 100 * MS, end, [0.04, *[0.0] * 7])
        writer.flush()
    writer.close()
    run = load(tmp_path)
    (chart,) = lanes_section(run).charts
    assert chart.table is not None
    assert [row[3].text for row in chart.table.rows] == [
        *(f"layer{n}" for n in range(40)), "no phase",
    ]  # fmt: skip
    for file in tmp_path.iterdir():
        file.unlink()
    assert "rows are deleted" in lanes_section(run).why


def test_the_page_of_a_log_has_no_such_section() -> None:
    names = [one.name for one in contents(sample("zero3_0.19.8")).sections]
    assert "ranks" in names
    assert "lanes" not in names
