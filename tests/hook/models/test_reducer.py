"""DDP's reducer, whatever calls backward and whatever the model returns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dsprof.hook.attach import attach
from dsprof.hook.spans import COMMUNICATION
from dsprof.recording.layout import STANDING
from tests.hook.jobs_of import launch
from tests.hook.rows import folder, in_flight, last_phase, read

JOB = ("reduced",)
LEAVES = ("a leaf", "leaves of two")
REDUCED = ("attacked", "synchronized late", "synchronized early", "halved", "asked")
AGAIN = ("checkpointed", "whole", "checkpointed two")
FUTURES = ("a future", "what follows", "the work")
BY_HAND = ("waited for behind", "waited for inside")
POWERED = "powered"
KINDS = (*LEAVES, *REDUCED, *AGAIN, *FUTURES, POWERED)
LATE, STEPS = 0.1, 4


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_the_same_to_the_last_bit(results: list[dict[str, Any]], kind: str) -> None:
    for result in results:
        assert result[kind]["watched"]["losses"] == result[kind]["plain"]["losses"]


@pytest.mark.parametrize("kind", LEAVES)
def test_no_hook_stays_on_a_parameter_that_a_model_returns(
    results: list[dict[str, Any]], kind: str
) -> None:
    for result in results:
        assert result[kind]["watched"]["hooks"] == 0


@pytest.mark.parametrize("kind", REDUCED + AGAIN)
def test_gradients_are_reduced_where_ddp_reduced_them_and_no_call_is_made_up(
    results: list[dict[str, Any]], out: Path, kind: str
) -> None:
    """DDP decides in forward, and a communication hook's own calls are Python's. A thread that
    evaluates meanwhile ends no backward of another one's."""
    for result, rank in zip(results, folder(out / kind), strict=True):
        issued = result[kind]["watched"]["issued"].get("all_reduce", 0)
        calls = [row for row in rank.collectives if row.op == "all_reduce"]
        assert sum(row.calls for row in calls) == rank.config["collectives_seen"] == issued
        assert (issued == 0) == (kind == "synchronized late")
        assert {row.path for row in calls} <= {"backward"}
        if kind in AGAIN:  # others have a communication hook, or reduce nothing
            assert rank.config["gradient_buckets"] == calls[-1].calls
        assert all(row.blocked > 0 for row in calls)


@pytest.mark.parametrize("kind", AGAIN)
@pytest.mark.usefixtures("results")
def test_where_checkpointing_begins_a_backward_inside_the_wait_is_seen(
    out: Path, kind: str
) -> None:
    """What is computed again in backward is training, though its forward has no gradients."""
    for rank, rows in enumerate(folder(out / kind)):
        models = 1 + kind.endswith("two")
        assert (rows.usual_wait > 0.6 * LATE * models) == (rank == 0)
        assert {row.path for row in rows.spans} == {"forward", "backward", "step"}
        assert len([row for row in rows.spans if row.path == "forward"]) == STEPS * models


@pytest.mark.parametrize("kind", FUTURES)
@pytest.mark.usefixtures("results")
def test_a_collective_is_waited_for_through_its_future_or_one_that_follows_too(
    out: Path, kind: str
) -> None:
    for rank, rows in enumerate(folder(out / kind)):
        assert len(rows.collectives) == rows.config["collectives_seen"]
        assert rows.usual_wait > 0.6 * LATE or rank
        waited = sum(row.blocked for row in rows.collectives) * 1e-9
        charged = sum(step.classes[1] for step in rows.steps)
        assert charged == pytest.approx(waited, rel=1e-3)


@pytest.mark.usefixtures("results")
def test_what_ddp_waits_for_that_python_has_let_go_of_is_a_wait_of_the_rank_that_is_early(
    out: Path,
) -> None:
    """PowerSGD chains its calls: of the first, for which a late rank lets wait, C++ has the only
    future.
    """
    waits = [rows.usual_wait for rows in folder(out / POWERED)]
    assert waits[0] > 0.8 * LATE > waits[1]


@pytest.mark.parametrize(
    ("kind", "waits", "operation", "phases", "library"),
    [
        ("gradients", 0, "all_reduce", ("backward", "behind data"), "torch/autograd/"),
        ("buffers", 1, "broadcast", ("behind data", "forward"), "torch/nn/parallel/"),
        ("data", 0, "all_reduce", ("backward", "data"), "torch/autograd/"),
        ("first", 0, "all_reduce", ("backward", "forward"), "torch/autograd/"),
    ],
)
def test_a_rank_that_ends_while_ddp_waits_was_in_that_collective_and_the_other_in_none(
    tmp_path: Path,
    kind: str,
    waits: int,
    operation: str,
    phases: tuple[str, str],
    library: str,
) -> None:
    """Both were ended by SIGKILL, and in this phase, or behind it. What they stood in is told."""
    assert not launch("standing", (2, tmp_path, kind), needs="torch")
    files = sorted((tmp_path / "run").glob("*.dsprof"))
    assert [in_flight(file)[0] for file in files] == [operation, ""][:: 1 if waits == 0 else -1]
    assert tuple(last_phase(file) for file in files) == phases
    stood = [[row.text for row in read(file).metrics if row.name == STANDING][-1] for file in files]
    assert stood[1 - waits].startswith("stand_still (./tests/hook/jobs/standing.py:")
    assert library in stood[waits]
    assert " < main (./tests/hook/jobs/standing.py:" in stood[waits]


@pytest.mark.parametrize("kind", BY_HAND)
def test_gradients_that_the_loop_itself_waits_for_are_waited_for_there(
    results: list[dict[str, Any]], out: Path, kind: str
) -> None:
    """Behind backward, where that of the first step always is, or inside it."""
    if kind not in results[0]:
        pytest.skip("this PyTorch's DDP always waits by itself (2.15's can leave it to the loop)")
    for number, (result, rank) in enumerate(zip(results, folder(out / kind), strict=True)):
        assert result[kind]["watched"]["losses"] == result[kind]["plain"]["losses"]
        issued = result[kind]["watched"]["issued"]["all_reduce"]
        assert sum(row.calls for row in rank.collectives) == issued == STEPS
        inside = kind.endswith("inside")
        assert Counter(row.path for row in rank.collectives)["backward"] == inside * (STEPS - 1)
        assert rank.usual_wait > 0.6 * LATE or number
        waited = sum(row.blocked for row in rank.collectives) * 1e-9
        charged = sum(step.classes[1] for step in rank.steps)
        assert charged == pytest.approx(waited, rel=1e-3)


def test_where_no_backend_counts_its_calls_what_ddp_waits_for_is_communication_without_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of those that others than PyTorch made."""
    torch = pytest.importorskip("torch")
    dist = pytest.importorskip("torch.distributed")

    def uncounted(_: Any) -> int:
        raise RuntimeError("ProcessGroup custom does not yet support sequence numbers.")

    monkeypatch.setattr(dist.ProcessGroup, "_get_sequence_number_for_group", uncounted)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        model = torch.nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with attach(model, optimizer=optimizer, out=tmp_path):
            for _ in range(3):
                model(torch.ones(2, 2)).sum().backward()
                optimizer.step()
    finally:
        dist.destroy_process_group()
    (rank,) = folder(tmp_path)
    assert [row.step for row in rank.steps] == [1, 2, 3]
    assert all(row.classes[COMMUNICATION] > 0 for row in rank.steps)
    assert not rank.collectives
    assert not capsys.readouterr().err
