"""The generator's truth is true: another reading of the same bytes finds the same records."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generate import (
    Options,
    compress,
    parse_size,
    truth_path,
    write,
    write_bars,
)
from benchmarks.noise import WRAPPERS

_N = rb"(-?[\d.]+(?:[eE][-+]?\d+)?)"


def _pattern(text: str) -> re.Pattern[bytes]:
    """`#` stands for a number, everything else for itself."""
    return re.compile(re.escape(text.encode()).replace(rb"\#", _N).replace(rb"\ ", rb" "))


def _timers(*names: str) -> str:
    return "time (ms) | " + " | ".join(f"{name}: #" for name in names)


#: Kind -> strict text, and the keys its numbers belong to.
STRICT = {
    "ds_step": (
        "step=#, skipped=#, lr=[#], mom=[[#, 0.95]]",
        ["step", "skipped", "lr", "momentum"],
    ),
    "ds_throughput": (
        "epoch=0/micro_step=#/global_step=#, RunningAvgSamplesPerSec=#, "  # noqa: ISC004
        "CurrSamplesPerSec=#, MemAllocated=#GB, MaxMemAllocated=#GB",
        ["micro_step", "global_step", "RunningAvgSamplesPerSec", "CurrSamplesPerSec",
         "MemAllocated", "MaxMemAllocated"],
    ),
    "time_micro": (
        _timers("fwd_microstep", "bwd_microstep", "bwd_inner_microstep",
                "bwd_allreduce_microstep", "step_microstep"),
        ["fwd_microstep", "bwd_microstep", "bwd_inner_microstep",
         "bwd_allreduce_microstep", "step_microstep"],
    ),
    "time_global": (
        _timers("fwd", "bwd", "bwd_inner", "bwd_allreduce", "step"),
        ["fwd", "bwd", "bwd_inner", "bwd_allreduce", "step"],
    ),
    "time_zero_opt": (
        _timers("optimizer_allgather", "optimizer_gradients", "optimizer_step"),
        ["optimizer_allgather", "optimizer_gradients", "optimizer_step"],
    ),
    "pipe_steps": (
        "steps: # loss: # iter time (s): # samples/sec: #",
        ["steps", "loss", "iter time (s)", "samples/sec"],
    ),
    "hf_log": (
        "{'loss': #, 'grad_norm': #, 'learning_rate': #, 'epoch': #}",
        ["loss", "grad_norm", "learning_rate", "epoch"],
    ),
    "overflow": (
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: #, reducing to #",
        ["attempted", "reduced"],
    ),
    "comm_op": (" | time (ms): # | msg size: ", ["time (ms)"]),
    "pipe_pct": ("%comms: #", ["comms"]),
    "see_memory": ("MA # GB         Max_MA # GB         CA # GB         Max_CA # GB ",
                   ["MA", "Max_MA", "CA", "Max_CA"]),
    "time_deeper": ("time (ms) | train_batch: 0.00 | batch_input: # | forward: #",
                    ["batch_input", "forward"]),
}  # fmt: skip
_MEGATRON = re.compile(rb" iteration +(\d+)/ 9000000 \|((?: [^:|\r\n]+: +[-+.\dE]+ \|){14})")


def _read(data: bytes) -> dict[str, dict[str, list[float]]]:
    """Kind -> key -> every number in the file, by strict patterns alone."""
    found: dict[str, dict[str, list[float]]] = {}
    for kind, (text, keys) in STRICT.items():
        rows = [match.groups() for match in _pattern(text).finditer(data)]
        if rows:
            found[kind] = {key: [float(row[i]) for row in rows] for i, key in enumerate(keys)}
    for match in _MEGATRON.finditer(data):
        columns = found.setdefault("megatron_iter", {})
        columns.setdefault("iteration", []).append(float(match[1]))
        for field in match[2].decode().split("|")[:-1]:
            key, value = field.rsplit(":", 1)
            columns.setdefault(key.strip(), []).append(float(value))
    return found


def _truth(log: Path) -> dict[str, Any]:
    return dict(json.loads(truth_path(log).read_text()))


def _assert_true(log: Path) -> None:
    """Every kind has as many records, and every key the same sum, as the truth says."""
    truth, found = _truth(log)["kinds"], _read(log.read_bytes())
    assert set(found) == set(truth)
    for kind, columns in found.items():
        for key, values in columns.items():
            told = truth[kind]["keys"][key]
            assert (kind, key, len(values)) == (kind, key, told["count"]), (kind, key)
            assert sum(values) == pytest.approx(told["sum"], rel=1e-9), (kind, key)
            assert truth[kind]["records"] == len(values)


@pytest.mark.parametrize("wrapper", [*WRAPPERS, "mixed", "sections"])
def test_under_every_launcher_the_file_holds_what_the_truth_says(
    tmp_path: Path, wrapper: str
) -> None:
    log = tmp_path / "run.log"
    write(log, Options(size=400_000, metric_share=0.5, wrapper=wrapper))
    _assert_true(log)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.8])
def test_the_share_of_lines_with_a_record_is_the_one_asked_for(
    tmp_path: Path, share: float
) -> None:
    log = tmp_path / "run.log"
    truth = write(log, Options(size=3_000_000, metric_share=share))
    assert truth.metric_lines / truth.lines == pytest.approx(share, rel=0.1)
    assert truth.lines == log.read_bytes().count(b"\n")
    _assert_true(log)


def test_with_other_line_breaks_or_none_the_records_are_the_same(tmp_path: Path) -> None:
    options = {"size": 300_000, "dialects": ("megatron", "huggingface"), "wrapper": "none"}
    logs = []
    for number, newline in enumerate(("\n", "\r\n", "")):
        logs.append(tmp_path / f"{number}.log")
        write(logs[-1], Options(**options, newline=newline))  # type: ignore[arg-type]
        _assert_true(logs[-1])
    lf, crlf, one_line = (log.read_bytes() for log in logs)
    assert crlf.replace(b"\r\n", b"\n") == lf
    assert b"\n" not in one_line
    assert b"\r" not in one_line


def test_the_same_seed_gives_the_same_file_and_another_seed_another(tmp_path: Path) -> None:
    texts = []
    for number, seed in enumerate((1, 1, 2)):
        log = tmp_path / f"{number}.log"
        write(log, Options(size=100_000, seed=seed))
        texts.append(log.read_bytes())
    assert texts[0] == texts[1] != texts[2]


def test_a_log_of_so_many_steps_prints_every_line_of_every_step(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    write(log, Options(metric_share=1, dialects=("plain-0.18",), launches=1, steps=500, clean=True))
    kinds = _truth(log)["kinds"]
    assert {kinds[kind]["steps"] for kind in ("ds_step", "time_micro", "time_global")} == {500}
    assert kinds["time_global"]["first_step"] == 1
    assert kinds["time_global"]["last_step"] == 500
    assert kinds["ds_throughput"]["steps"] == 498  # from the third step on
    assert kinds["time_zero_opt"]["steps"] == 500 - kinds["overflow"]["steps"]


def test_a_progress_bar_without_line_breaks_still_holds_records(tmp_path: Path) -> None:
    log = tmp_path / "bars.log"
    write_bars(log, 3_000_000)
    data = log.read_bytes()
    assert b"\n" not in data
    assert data.count(b"\r") > 20_000
    _assert_true(log)


def test_a_realistic_log_is_dirty(tmp_path: Path) -> None:
    """Colour, glue, torn heads, decoys and broken bytes are all there, or nothing is proved."""
    log = tmp_path / "run.log"
    write(log, Options(size=3_000_000, metric_share=0.5))
    data = log.read_bytes()
    with pytest.raises(UnicodeDecodeError):
        data.decode()
    for needle in (rb"\x1b\[32m[^\n]*time \(ms\) \| fwd: ", rb"it/s\][^\r\n]*time \(ms\) \| fwd",
                   rb"step=12, ski[^\n]", rb"we run for steps: \d", rb"time \(ms\)\n"):  # fmt: skip
        assert re.search(needle, data), needle


def test_compressed_copies_unpack_to_the_log(tmp_path: Path) -> None:
    import zstandard

    log = tmp_path / "run.log"
    write(log, Options(size=100_000))
    assert gzip.decompress(compress(log, "gz").read_bytes()) == log.read_bytes()
    with zstandard.open(compress(log, "zst"), "rb") as unpacked:
        assert unpacked.read() == log.read_bytes()


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 64 << 20), ("1GiB", 1 << 30), ("100MB", 10**8), ("512", 512), ("2k", 2000)],
)
def test_sizes_are_read_in_either_system(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_every_launch_opens_with_its_command_and_version(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    truth = write(log, Options(size=100_000, launches=3))
    assert log.read_bytes().count(b"[runner.py:568:main] cmd = ") == 3 == len(truth.launches)
