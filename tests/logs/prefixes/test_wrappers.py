"""What launchers, runtimes, loggers and people put in front of a line: alone and composed."""

# ruff: noqa: DTZ001  # a log seldom names its zone
from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest

from dsprof.logs.prefixes.wrappers import header_start
from dsprof.logs.sources import containers
from tests.logs.reading import PFX, TIMERS, read, rows

RECORD = b"step=7, skipped=2, lr=[0.001], mom=[(0.9, 0.999)]"
DOCKER_TIME = datetime(2024, 1, 2, 3, 4, 5, 123456)
LOGGED = datetime(2024, 3, 15, 13, 21, 52, 800000)

#: Prefix → what it tells: at, host, rank.
LAYERS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "containerd": (b"2024-01-02T03:04:05.123456789Z stdout F ", {"at": DOCKER_TIME}),
    "kubectl": (b"2024-01-02T03:04:05.123456789Z ", {"at": DOCKER_TIME}),
    "journald": (
        b"2024-01-02T05:04:05.123456+0200 node-1 prog[7]: ",
        {"at": DOCKER_TIME, "host": "node-1"},
    ),
    "kubectl with a zone": (b"2024-01-02T05:04:05.123456789+02:00 ", {"at": DOCKER_TIME}),
    "kubectl --prefix": (b"[pod/train-0/pytorch] ", {"host": "train-0"}),
    "platform": (
        b"2024-03-15 13:21:52.800 [INFO] 10.42.3.208: ",
        {"at": LOGGED, "host": "10.42.3.208"},
    ),
    "pdsh": (b"worker-1: ", {"host": "worker-1"}),
    "a host and an arrow": (b"worker-1 >> ", {"host": "worker-1"}),
    "slurmstepd": (b"slurmstepd-node7: ", {"host": "node7"}),
    "srun": (b" 3: ", {"host": "task 3"}),
    "srun where Slurm's daemon speaks": (b"3: slurmstepd: error: ", {}),
    "mpirun": (b"[1,5]<stdout>:", {"rank": 5}),
    "mpirun with a time": (
        b"Tue Nov 21 05:33:09 2026[1,5]<stderr>:",
        {"at": datetime(2026, 11, 21, 5, 33, 9), "rank": 5},
    ),
    "horovodrun": (b"[5]<stdout>:", {"rank": 5}),
    "SageMaker": (b"[1,mpirank:5,algo-1]<stdout>:", {"rank": 5, "host": "algo-1"}),
    "SageMaker without a stream": (b"[1,mpirank:5,algo-1]:", {"rank": 5, "host": "algo-1"}),
    "Ray": (b"(RayTrainWorker pid=1234) ", {}),
    "Ray on another node": (b"(WorkerDict pid=1234, ip=10.0.0.7) ", {"host": "10.0.0.7"}),
    "Ray where it does not know its node": (b"(WorkerDict pid=1234, ip=0.0.0.0) ", {}),
    "Ray's colours": (b"\x1b[36m(f pid=1234, ip=10.0.0.7)\x1b[0m ", {"host": "10.0.0.7"}),
    "SkyPilot": (b"(worker1, rank=1, pid=1234, ip=10.0.0.7) ", {"host": "10.0.0.7"}),
    "Determined": (
        b"[2024-01-02T03:04:05.123456Z] 1a2b3c4d [rank=3] || ",
        {"at": DOCKER_TIME, "rank": 3},
    ),
    "Jenkins": (b"[2024-01-02T03:04:05.123456Z] ", {"at": DOCKER_TIME}),
    "date and time": (b"2024-03-15 13:21:52,800 ", {"at": LOGGED}),
    "python's logging": (b"2024-03-15 13:21:52,800 - DeepSpeed - INFO - ", {"at": LOGGED}),
    "loguru": (b"2024-03-15 13:21:52.800 | INFO     | a.b:run:54 - ", {"at": LOGGED}),
    "mmengine": (b"2024/03/15 13:21:52.800 - mmengine - INFO - ", {"at": LOGGED}),
    "a level before a bar": (b"INFO     | ", {}),
    "torchserve": (b"2024-03-15T13:21:52,800 [INFO ] W-29500-stdout MODEL_LOG - ", {"at": LOGGED}),
    "a table of times": (b"2024-03-15 13:21:52.800\t", {"at": LOGGED}),
    "ts": (b"Mar 15 13:21:52 ", {}),  # of no year
    "syslog": (b"Mar 15 13:21:52 node-1 train.sh[99]: ", {"host": "node-1"}),
    "pm2": (b"0|run-3b  | 2024-03-15 13:21:52.800: ", {"at": LOGGED}),
    "NeMo": (b"[NeMo I 2024-01-02 03:04:05 a:220] ", {"at": DOCKER_TIME.replace(microsecond=0)}),
    "OpenMPI 5": (b"[prterun-node-7-123@1,5]<stdout>: ", {"rank": 5}),
    "torchrun --tee": (b"[default3]:", {"rank": 3}),
    "torch": (b"[rank6]: ", {"rank": 6}),
    "logger": (PFX[: -len(b"[Rank 0] ")], {"at": LOGGED}),
    "logger read from a slide": (
        b"[2024-03-15 13:21:52, 800] [INFO] [logging.py:60:log_dist] ",
        {"at": LOGGED},
    ),
    "logger without a function": (
        b"[2024-03-15 13:21:52,800] [INFO] [logging.py:60] ",
        {"at": LOGGED},
    ),
    "logger and rank": (PFX, {"at": LOGGED, "rank": 0}),
    "Primus": (
        b"[20240315 13:21:52][rank-7/8][INFO ] [--------trainer.py:2560] : ",
        {"at": LOGGED.replace(microsecond=0), "rank": 7},
    ),
    "rank alone": (b"[Rank 4] ", {"rank": 4}),
    "rank in capitals": (b"[INFO] [RANK 4] ", {"rank": 4}),
    "accelerate": (
        b"03/15/2024 13:21:52 - INFO - __main__ - ",
        {"at": LOGGED.replace(microsecond=0)},
    ),
    "trainer": (b"[INFO|trainer.py:2134] 2024-03-15 13:21:52,800 >> ", {"at": LOGGED}),
    "torchrun 2.1": (
        b"[2024-03-15 13:21:52,800] torch.distributed.elastic.multiprocessing.api: [ERROR] ",
        {"at": LOGGED},
    ),
    "torchrun 2.1 without its time": (
        b"torch.distributed.elastic.multiprocessing.api: [ERROR] ",
        {},
    ),
    "Ascend": (b"EI0006: ", {}),
    "a part of gcc": (b"cc1plus: ", {}),
    "glog without its head": (b"ProcessGroupNCCL.cpp:563] ", {}),
    "two ranks' exceptions at once": (b"torch.cuda.OutOfMemoryErrortorch.cuda: ", {}),
    "LLaMA-Factory": (
        b"[INFO|2024-03-15 13:21:52] llamafactory.train.callbacks:143 >> ",
        {"at": LOGGED.replace(microsecond=0)},
    ),
    "quoted mail": (b"> > ", {}),
    "indentation": (b"    ", {}),
    "numbered dump": (b"[1743] ", {}),
    "nothing": (b"", {}),
}


def told(text: bytes) -> dict[str, Any]:
    """What the one step record of the text says about itself."""
    (row,) = rows(text, name="skipped")
    assert (row["value"], row["step"]) == (2, 7)
    return {key: row[key] for key in ("at", "host", "rank")}


@pytest.mark.parametrize("layer", LAYERS)
def test_each_wrapper_tells_what_it_knows(layer: str) -> None:
    prefix, facts = LAYERS[layer]
    assert told(prefix + RECORD + b"\n") == {"at": None, "host": None, "rank": None} | facts


OUTER = ("platform", "containerd", "kubectl", "pdsh", "srun", "quoted mail", "indentation")
MIDDLE = ("torchrun --tee", "torch", "mpirun", "nothing")
INNER = ("logger", "logger and rank", "rank alone", "trainer", "nothing")


@pytest.mark.parametrize(("outer", "middle", "inner"), [*product(OUTER, MIDDLE, INNER)])
def test_wrappers_compose(outer: str, middle: str, inner: str) -> None:
    """The outermost clock and host count, and the innermost rank; torch's is the job's own."""
    layers = [LAYERS[name] for name in (outer, middle, inner)]
    facts: dict[str, Any] = {"at": None, "host": None, "rank": None}
    for _, known in reversed(layers):
        facts |= {key: value for key, value in known.items() if key != "rank"}
    for _, known in layers:
        facts |= {key: value for key, value in known.items() if key == "rank"}
    # A global rank outranks a local one, wherever it stands.
    if middle == "torchrun --tee" and "rank" not in layers[2][1]:
        facts["rank"] = 3
    if middle == "torch":  # what stands behind it may be a rank within a process group
        facts["rank"] = 6
    text = b"".join(prefix for prefix, _ in layers) + RECORD + b"\n"
    assert told(text) == facts


BLOCK = b"2024-03-15T05:25:00.000001Z stdout F "  # eight hours behind the loggers


@pytest.mark.parametrize("inner", ["logger", "logger and rank", "trainer", "LLaMA-Factory"])
def test_lines_that_a_wrapper_was_passed_in_blocks_are_of_their_loggers_time(inner: str) -> None:
    prefix, facts = LAYERS[inner]
    assert told(BLOCK + prefix + RECORD + b"\n")["at"] == facts["at"] - timedelta(hours=8)
    (row,) = rows(BLOCK + PFX + TIMERS + b" " + prefix + RECORD + b"\n", name="skipped")
    assert row["at"] == facts["at"] - timedelta(hours=8)


def test_editor_line_numbers_are_no_task() -> None:
    assert told(b"   12 " + PFX + RECORD + b"\n")["host"] is None


def test_a_clock_without_a_year_takes_that_of_the_first_full_date() -> None:
    glog = b"W1121 05:58:21.685000 3181 torch/elastic/api.py:1028] " + RECORD + b"\n"
    assert told(glog)["at"] is None
    (row,) = rows(PFX + TIMERS + b"\n" + glog, name="skipped")
    assert row["at"] == datetime(2024, 11, 21, 5, 58, 21, 685000)


@pytest.mark.parametrize(
    ("date", "clock", "at"),
    [
        (
            b"2025-12-31 23:59:58,100",
            b"0101 00:00:04.500000",
            datetime(2026, 1, 1, 0, 0, 4, 500000),
        ),
        (
            b"2026-01-01 00:00:01,100",
            b"1231 23:59:59.500000",
            datetime(2025, 12, 31, 23, 59, 59, 500000),
        ),
        (
            b"2025-03-15 13:21:52,800",
            b"1031 05:58:21.500000",
            datetime(2025, 10, 31, 5, 58, 21, 500000),
        ),
    ],
)
def test_a_clock_without_a_year_goes_on_over_new_year(
    date: bytes, clock: bytes, at: datetime
) -> None:
    dated = b"[" + date + b"] [INFO] [logging.py:96:log_dist] "
    glog = b"W" + clock + b" 3181 torch/elastic/api.py:1028] " + RECORD + b"\n"
    (row,) = rows(dated + TIMERS + b"\n" + glog, name="skipped")
    assert row["at"] == at


def test_syslog_takes_the_year_of_the_loggers_that_it_carries() -> None:
    syslog = b"Mar 15 13:21:%02d node-1 train[9]: "
    text = syslog % 52 + PFX + TIMERS + b"\n" + syslog % 54 + RECORD + b"\n"
    (row,) = rows(text, name="skipped")
    assert row["at"] == datetime(2024, 3, 15, 13, 21, 54)


def test_torch_clocks_count_nanoseconds_and_drop_the_zero_of_a_month() -> None:
    line = b"[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] " + RECORD + b"\n"
    (row,) = rows(PFX + TIMERS + b"\n" + line, name="skipped")
    assert (row["at"], row["rank"]) == (datetime(2024, 3, 21, 2, 7, 8, 408271), 0)


@pytest.mark.parametrize("number", [b"12 | ", b"    7  | ", b"10:00:05 ", b"2024-01-02T03:04:05 "])
def test_the_number_of_a_line_and_its_time_are_no_hosts(number: bytes) -> None:
    assert told(number + RECORD + b"\n")["host"] is None


def test_a_host_that_docker_compose_names_may_begin_with_a_number() -> None:
    assert told(b"7b-trainer-1  | " + RECORD + b"\n")["host"] == "7b-trainer-1"


def test_a_word_before_a_colon_is_no_host() -> None:
    assert told(b"Warning: " + RECORD + b"\n")["host"] is None


def test_a_script_whose_line_a_shell_names_is_no_host() -> None:
    assert told(b"run.sh: line 12: " + RECORD + b"\n")["host"] is None


def test_on_several_hosts_a_local_rank_says_nothing_about_the_global_one() -> None:
    text = b"".join(b"worker-%d: [default3]:" % host + RECORD + b"\n" for host in (1, 2))
    assert [row["rank"] for row in rows(text, name="skipped")] == [None, None]


@pytest.mark.parametrize(
    "shape",
    [
        "\x1b[32m%s\x1b[0m",
        "\x1b[93m [WARNING] \x1b[0m%s",
        "^[[1m%s",
        "\x1b_bk;t=1700000000000\x07%s",
        "\x1b]0;user@node-1: ~\x07%s",
    ],
)
def test_colours_hide_nothing(shape: str) -> None:
    text = (shape % (PFX + RECORD).decode()).encode() + b"\n"
    assert told(text) == {"at": LOGGED, "host": None, "rank": 0}


# docker's json-file and containerd


def docker(
    text: str, stream: str = "stdout", time: str = "2024-01-02T03:04:05.123456789Z"
) -> bytes:
    return json.dumps({"log": text, "stream": stream, "time": time}).encode() + b"\n"


def test_docker_json_gives_time_and_text() -> None:
    assert told(docker(RECORD.decode() + "\n")) == {"at": DOCKER_TIME, "host": None, "rank": None}


def test_docker_json_that_pdsh_collected_gives_the_host_too() -> None:
    text = b"worker-1: " + docker(RECORD.decode() + "\n")
    assert told(text) == {"at": DOCKER_TIME, "host": "worker-1", "rank": None}


def test_parts_of_lines_of_two_hosts_are_joined_each_for_itself() -> None:
    line = RECORD.decode() + "\n"
    text = b"".join(
        host + docker(part)
        for part in (line[:20], line[20:])
        for host in (b"worker-1: ", b"worker-2: ")
    )
    hosts = [row["host"] for row in rows(text, name="skipped")]
    assert hosts == ["worker-1", "worker-2"]


def test_docker_splits_of_16_kib_are_joined_and_lines_keep_their_numbers() -> None:
    keys = " | ".join(f"timer_{i}: {i}.50" for i in range(2000))
    line = f"time (ms) | {keys}\n"
    parts = [line[i : i + 16384] for i in range(0, len(line), 16384)]
    text = b"".join(map(docker, parts)) + docker(RECORD.decode() + "\n")
    log = read(text)
    names = log.events.to_pylist()
    assert [r["raw"] for r in names if r["kind"] == "phase"] == [f"timer_{i}" for i in range(2000)]
    assert [r["line"] for r in names if r["name"] == "skipped"] == [len(parts) + 1]
    assert log.coverage.lines == len(parts) + 1


def test_parts_of_two_streams_are_not_mixed() -> None:
    half = len(RECORD) // 2
    text = docker(RECORD[:half].decode(), "stdout") + docker("noise\n", "stderr")
    assert told(text + docker(RECORD[half:].decode() + "\n"))["at"] == DOCKER_TIME


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("label", [b"", b"    ", b"worker-1: "])
def test_containerd_partial_lines_are_joined(label: bytes, end: bytes) -> None:
    """Also where pdsh prints them, where they were quoted, and where Windows ended them."""
    stamp = label + b"2024-01-02T03:04:05.123456789Z stdout "
    text = stamp + b"P " + RECORD[:20] + end + stamp + b"F " + RECORD[20:] + end
    found = told(text)
    assert found["at"] == DOCKER_TIME
    assert found["host"] == ("worker-1" if label.strip() else None)


def test_a_container_log_cut_anywhere_is_read_to_its_end() -> None:
    text = docker(RECORD.decode() + "\n") * 2 + docker(RECORD.decode())
    for cut in range(len(text) * 2 // 3, len(text)):
        assert [row["value"] for row in rows(text[:cut], name="skipped")][:2] == [2, 2]
    assert len(rows(text, name="skipped")) == 3


def test_docker_objects_that_are_no_strings_are_left_alone() -> None:
    bad = b'{"log": 5}\n{"log":\n[1]\n' + docker("fine\n")
    assert containers.Containers().feed(docker("a\n") + bad).count(b"\n") == 5


@pytest.mark.parametrize(
    "header",
    [
        b"[2024-01-02 03:04:05,123] [INFO] [a.py:1:x] ",
        b"2024-01-02T03:04:05Z ",
        b"I0321 02:07:08.4082 a.py:1] ",
        b"W321 02:07:08.4082 12 a.py:1] ",
        b"01/02/2024 03:04:05 - INFO - a.b - ",
        b"[rank1]: ",
    ],
)
def test_a_header_is_found_behind_numbers_and_only_whole(header: bytes) -> None:
    numbers = b"loss: 2.5E-04 | [1] eta: 12:30:00 | 1-02-03 1/2 7"
    text = numbers + b" " + header + numbers
    start = len(numbers) + 1
    assert header_start(text, 0, len(text)) == start
    assert header_start(text, start, len(text)) == start
    assert header_start(text, 0, start + 3) == start + 3
    assert header_start(numbers, 0, len(numbers)) == len(numbers)
