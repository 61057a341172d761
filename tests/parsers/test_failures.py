"""How jobs fail, in shapes that tracebacks and messages have where people paste or cut them."""

from __future__ import annotations

import pandas as pd
import pytest

from dsprof.findings import findings_of
from tests.loaded import run_of_text


def causes(*lines: str) -> list[tuple[str, str]]:
    """Kind and text of what is the first cause of each failure in these lines."""
    problems = run_of_text(*(f"{line}\n" for line in lines)).problems
    cause = problems[problems["root_cause"]]
    return [*zip(cause["kind"], cause["text"], strict=True)]


def problems(*lines: str) -> pd.DataFrame:
    """All problems in these lines."""
    return run_of_text(*(f"{line}\n" for line in lines)).problems


FRAME = '  File "/data/train.py", line 4, in evaluate'
WRAPPER = "/opt/lib/torch/distributed/elastic/multiprocessing/errors/__init__.py"


@pytest.mark.parametrize(("before", "is_read"), [(0, True), (2000, False)])
def test_a_traceback_without_its_head_is_one_where_a_source_begins(
    before: int, is_read: bool
) -> None:
    """Elsewhere frames of a stack are many, and mean nothing."""
    rest = ["a line of 40 characters that means nothing"] * before
    end = [FRAME, "ValueError: no", "a line of something else"]
    assert causes(*rest, *end) == [("exception", "ValueError: no")] * is_read


ALONE = "ValueError: no rows in shard 17"


def test_an_exception_without_a_traceback_counts_as_the_last_line_of_a_source_alone() -> None:
    """In front of others it may have been caught."""
    told = [("exception", f"a last line without a traceback: {ALONE}")]
    before = ["a line of 40 characters that means nothing"] * 2000
    assert causes(ALONE) == causes(*before, ALONE, "", "") == told
    assert causes(ALONE, "a line of something else") == []
    assert causes(*before, f"[rank13]: {ALONE}") == [("exception", ALONE)]  # nobody caught it
    for quoted in ("skipped a batch, ", "2024-03-15 13:28:52,900 - ERROR - ", "ERROR:root:"):
        assert causes(quoted + ALONE) == []


def test_the_last_line_of_a_traceback_is_told_once() -> None:
    head = "Traceback (most recent call last):"
    assert causes(head, FRAME, ALONE) == causes(FRAME, ALONE) == [("exception", ALONE)]
    oom = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert causes(oom) == causes(head, FRAME, oom) == [("oom", oom)]


def test_a_traceback_that_the_source_breaks_off_is_told_with_its_last_frame() -> None:
    head = "  9%|9   | 270/9847 [05:50<3:17:42,  1.24s/it]Traceback (most recent call last):"
    frames = ['  File "/data/train.py", line 9, in <module>', "    main()", FRAME, "    loss = f("]
    told = [("exception", "its traceback breaks off at " + FRAME.strip())]
    assert causes(head, *frames) == causes(*frames) == told
    assert causes(head, *frames, "ValueError: no") == [("exception", "ValueError: no")]
    assert causes(head, *frames, "a line of something else") == []
    assert causes(head, *frames, "[rank3]: Traceback (most recent call last):") == told


@pytest.mark.parametrize(
    "frames",
    [
        [
            '  File "/opt/venv/bin/accelerate-launch", line 8, in <module>',
            "    sys.exit(main())",
            '  File "/opt/venv/lib/python3.9/accelerate/commands/launch.py", line 985, in main',
            "    launch_command(args)",
        ],
        [
            '  File "/opt/venv/bin/torchrun", line 8, in <module>',
            "    sys.exit(main())",
            f'  File "{WRAPPER}", line 345, in wrapper',
            "    return f(*args, **kwargs)",
        ],
    ],
    ids=["accelerate", "torchrun"],
)
def test_the_launchers_traceback_that_breaks_off_hides_no_exit_code(frames: list[str]) -> None:
    assert causes(
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -11) local_rank: 1 "
        "(pid: 5528) of binary: /opt/venv/bin/python",
        "Traceback (most recent call last):",
        *frames,
    ) == [("exit", "exitcode -11, local rank 1, pid 5528")]


def test_a_summary_of_torchrun_that_ends_right_behind_its_exception_breaks_off_nowhere() -> None:
    told = problems(
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : 1 (pid: 10229) ",
        "  traceback : Traceback (most recent call last):",
        '    File "train.py", line 7, in main',
        '      raise RuntimeError("the tokenizer folder is missing")',
        "  RuntimeError: the tokenizer folder is missing",
    )
    assert [*told["text"]] == ["exitcode 1", "RuntimeError: the tokenizer folder is missing"]


@pytest.mark.parametrize(("before", "is_read"), [(0, True), (2000, False)])
def test_an_exception_alone_behind_its_rank_is_one_where_a_source_begins(
    before: int, is_read: bool
) -> None:
    """PyTorch puts the rank in front of what nobody caught, and of nothing that a script prints."""
    rest = ["a line of 40 characters that means nothing"] * before
    told = causes(*rest, "[rank3]: KeyError: 'labels'", "a line of something else")
    assert told == [("exception", "KeyError: 'labels'")] * is_read
    assert causes(*rest, "KeyError: 'labels'", "rank3: KeyError: 'labels'") == []


def test_an_exception_below_its_traceback_is_one_failure() -> None:
    lines = ["[rank3]: Traceback (most recent call last):", f"[rank3]: {FRAME}"]
    found = problems(*lines, "[rank3]: RuntimeError: no")
    assert [*found["text"]] == ["RuntimeError: no"]


@pytest.mark.parametrize("before", [0, 2000])
def test_an_error_of_the_gpu_is_read_anywhere_though_others_count_at_the_beginning_alone(
    before: int,
) -> None:
    rest = ["a line of 40 characters that means nothing"] * before
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert causes(*rest, f"[rank3]: {error}") == [("exception", error)]


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: CUDA error: device-side assert triggered",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:275, remote error",
    ],
)
def test_an_error_that_has_no_traceback_ended_a_job_unless_that_went_on(error: str) -> None:
    steps = [f"{{'loss': 2.5, 'epoch': 0.{step}, 'step': {step}}}" for step in range(1, 7)]
    assert len(causes(*steps, error)) == 1
    assert causes(*steps[:4], error, *steps[4:]) == []
    assert causes(*steps, f"Tests mention '{error}'") == []
    ended = "[2026-11-21 05:52:22,114] [INFO] [launch.py:351:main] Process 31 exits successfully."
    assert causes(*steps, error, ended) == []


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
def test_an_address_that_every_host_has_names_no_host(address: str) -> None:
    died = "A worker died or was killed while executing a task by an unexpected system error. "
    told = problems(f"(raylet) {died}Node ID: 56cd Worker IP address: {address} Worker port: 10002")
    assert [*told["kind"]] == ["exception"]
    assert told["host"].isna().all()
    gone = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    told = problems(FRAME, gone, "\tpid: 1341", f"\tip: {address}")
    assert [*told["kind"]] == ["exception"]
    assert told["host"].isna().all()


@pytest.mark.parametrize("before", [0, 2000])
def test_an_exception_in_an_evaluation_is_known_as_one_anywhere(before: int) -> None:
    rest = ["a line of 40 characters that means nothing\n"] * before
    head = "Traceback (most recent call last):\n"
    told = run_of_text(*rest, head, f"{FRAME}\n", "ValueError: no\n").told
    assert (told["name"] == "raised_in_evaluation").sum() == 1


def test_a_traceback_in_a_box_of_rich_ends_with_the_exception_below_the_box() -> None:
    assert causes(
        "╭────── Traceback (most recent call last) ──────╮",
        "│ /data/train.py:353 in <module>                │",
        "│ ❱ 353 │   main()                              │",
        "╰───────────────────────────────────────────────╯",
        "AssertionError: the sizes of two batches are not",
        "equal",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 "
        "(pid: 5120) of binary: /opt/venv/bin/python",
    ) == [("exception", "AssertionError: the sizes of two batches are not")]


def test_a_box_of_rich_whose_head_was_cut_off_is_read_by_the_line_that_it_marks() -> None:
    box = ["│   352 │   main()     │", "│ ❱ 353 │   train()    │", "╰──────────────────────╯"]
    error = "AssertionError: the sizes of two batches are not"
    assert causes(*box, error, "equal") == [("exception", error)]
    assert causes(*box[:1], *box[2:], error, "equal") == []


def test_a_traceback_whose_head_was_cut_off_is_read_by_its_frames() -> None:
    assert causes(
        "    engine.step()",
        '  File "/data/train/engine.py", line 40, in step',
        "    raise ValueError('no')",
        "ValueError: no",
    ) == [("exception", "ValueError: no")]


def test_each_rank_has_its_own_traceback_also_without_heads() -> None:
    found = problems(
        '[rank1]:   File "/data/train/engine.py", line 40, in step',
        '[rank0]:   File "/data/train/engine.py", line 41, in step',
        "[rank1]: ValueError: one",
        "[rank0]: ValueError: none",
    )
    assert found[["rank", "text"]].to_numpy().tolist() == [
        [1, "ValueError: one"], [0, "ValueError: none"]
    ]  # fmt: skip


def test_a_frame_that_a_stack_dump_names_is_no_exception() -> None:
    assert problems(
        "Thread 0x00007f2 (most recent call first):",
        '  File "/usr/lib/python3.11/threading.py", line 331 in wait',
        '  File "/data/train/loop.py", line 12, in log',
        "{'loss': 2.1, 'epoch': 0.1}",
    ).empty


def said(*lines: str) -> str:
    """The first sentence about these lines, and its reasons."""
    found = findings_of(run_of_text(*(f"{line}\n" for line in lines)))[0]
    return f"{found.title}. {found.summary}"


@pytest.mark.parametrize(
    ("event", "broken"),
    [
        ("Got async event : client reregistration", False),
        ("mlx5_0:1 Got async event : port active", False),
        ("mlx5_0:1 Got async event : port error", True),
    ],
)
def test_an_event_of_a_subnet_that_works_on_is_no_broken_link(event: str, broken: bool) -> None:
    line = f"node7:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : {event}"
    assert problems(line).empty is not broken


def test_a_library_of_infiniband_that_is_not_installed_is_no_broken_link() -> None:
    line = "node7:43:43 [5] misc/ibvwrap.cu:63 NCCL WARN Failed to open libibverbs.so[.1]"
    assert problems(line)["kind"].tolist() == ["network-fallback"]
    assert "broken link" not in said(line)


def test_a_completion_of_newer_nccl_is_read_without_its_warning_and_its_code_told() -> None:
    words = said(
        "[rank4]: ncclRemoteError: A call failed possibly due to a network error",
        "Last error:",
        "NET/IB: Got completion from peer 10.0.1.23<34696> with status=12 opcode=0 len=0 "
        "vendor err 129 (Recv) hca mlx5_0",
    )
    assert "lost its network link" in words
    assert "InfiniBand's error 12: retries ran out" in words


def test_memory_that_nccl_did_not_get_is_told_instead_of_the_exception_s_own_words() -> None:
    error = (
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.cpp:230, "
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5"
    )
    words = said(
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/data/train.py", line 360, in <module>',
        error,
        "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.",
        "[rank0]: Last error:",
        "[rank0]: Failed to CUDA calloc async 16 bytes",
    )
    assert "ended with an exception: NCCL: Failed to CUDA calloc async 16 bytes" in words


def test_what_the_launcher_of_a_launcher_says_of_its_exit_code_is_no_cause() -> None:
    assert causes(
        "[2026-06-29 19:34:10,101] [ERROR] [launch.py:434:sigkill_handler] ['python'] "
        "exits with return code = -7",
        "Traceback (most recent call last):",
        '  File "/data/train.py", line 176, in launch_cmd',
        "RuntimeError: Step 1 exited with non-zero status 249",
    ) == [("exit", "exits with return code = -7")]


def test_the_exit_code_of_a_step_of_deepspeed_chat_tells_of_a_signal() -> None:
    words = said(
        "Traceback (most recent call last):",
        '  File "/data/train.py", line 176, in launch_cmd',
        "RuntimeError: Step 1 exited with non-zero status 249",
    )
    assert "Exit code 249 most likely stands for SIGBUS. Signal 7 mostly means" in words


@pytest.mark.parametrize(("number", "name"), [("15", "SIGTERM"), ("1", "SIGHUP")])
def test_a_signal_that_torchrun_was_sent_is_told_once_and_also_without_its_end(
    number: str, name: str
) -> None:
    begin = f"W0409 07:28:49.530 1359 api.py:719] Received {number} death signal, shutting down "
    end = (
        "Traceback (most recent call last):",
        '  File "/opt/venv/bin/torchrun", line 8, in <module>',
        f"torch.distributed.elastic.x.api.SignalException: Process 1359 got signal: {number}",
    )
    for lines in ((f"{begin}workers",), (f"{begin}workers", *end)):
        words = said(*lines)
        assert f"The launcher was killed by {name}" in words
        assert "It is the only failure" in words


def test_a_script_that_python_does_not_find_is_told_and_not_the_code_that_follows() -> None:
    words = said(
        "/opt/venv/bin/python3.10: can't open file '/data/hostfile': [Errno 2] No such file or "
        "directory",
        "[2026-06-06 02:44:06,210] [ERROR] [launch.py:434:sigkill_handler] ['python3.10', '-u', "
        "'/hostfile', '--local_rank=1'] exits with return code = 2",
    )
    assert "A process rejected its command line: can't open file '/data/hostfile'" in words


def test_a_port_that_is_taken_is_told_also_where_the_message_is_broken_into_lines() -> None:
    words = said(
        "RuntimeError: The server socket has failed to listen on any local network address. ",
        "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
    )
    assert "could not open the launcher's port: it is taken" in words
    refused = "RuntimeError: The server socket has failed to listen on any local network address."
    assert "ended with an exception: RuntimeError: The server socket" in said(refused)


def test_a_bus_error_is_mostly_a_full_shared_memory() -> None:
    assert "SIGBUS: exits with return code = -7. " in said("exits with return code = -7")
    assert "Signal 7 mostly means that shared memory" in said("exits with return code = -7")


def test_exit_codes_of_shells_and_of_the_launcher_tell_of_a_signal() -> None:
    assert "Exit code 247 most likely stands for SIGKILL" in said(
        "pdsh@login1: w-3: ssh exited with exit code 247"
    )
    assert "Exit code 137 most likely stands for SIGKILL" in said(
        "srun: error: node7: task 3: Exited with exit code 137"
    )
    assert "stands for" not in said("srun: error: node7: task 3: Exited with exit code 2")


def test_what_ssh_says_of_a_host_is_the_cause_of_its_exit_code() -> None:
    lines = (
        "worker-3: ann@worker-3: Permission denied (publickey,password).",
        "pdsh@login1: worker-3: ssh exited with exit code 255",
    )
    assert said(*lines).startswith(
        "worker-3 could not be reached over ssh: Permission denied (publickey,password)"
    )


def test_a_copy_that_ssh_refuses_while_training_runs_is_no_failure() -> None:
    found = problems(
        "[2026-01-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, "
        "lr=[0.001], mom=[[0.9, 0.999]]",
        "Host key verification failed.",
    )
    assert found["severity"].tolist() == ["info"]


def test_a_device_of_ascend_that_is_full_is_said_of_the_rank_in_the_line_before() -> None:
    assert said(
        "[ERROR] 2026-08-28-16:15:00 (PID:15597, Device:2, RankID:2) ERR00100 PTA call failed",
        "EL0004: 2026-08-28-16:15:00.358.141 Failed to allocate memory.",
    ).startswith("Rank 2 ran out of GPU memory")


def test_the_name_of_a_host_ends_without_a_dot() -> None:
    found = problems(
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-03-28_18:48:30",
        "  host      : DESKTOP-825X.",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : -9 (pid: 4541)",
    )
    assert found["host"].tolist() == ["DESKTOP-825X"]


def test_the_runner_of_a_notebook_ends_of_what_a_rank_did() -> None:
    assert causes(
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : 1 (pid: 1886)",
        "============================================================",
        "Traceback (most recent call last):",
        '  File "/usr/lib/papermill/engines.py", line 371, in execute_notebook',
        "papermill.exceptions.PapermillExecutionError: ",
    ) == [("root-cause", "exitcode 1")]


def test_a_failure_that_the_launcher_lists_beside_others_is_not_the_only_one() -> None:
    words = said(
        "Failures:",
        "[1]:",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -11 (pid: 6175)",
        "  error_file: <N/A>",
        "------------------------------------------------------",
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 0 (local_rank: 0)",
        "  exitcode  : -11 (pid: 6174)",
    )
    assert words.startswith("Rank 0 was killed by SIGSEGV")
    assert "The launcher names it as the first failure in the source; other messages" in words


def test_shared_memory_that_nccl_finds_full_is_no_broken_link() -> None:
    assert "lost its network link" not in said(
        "node7:97:183 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space "
        "left on device",
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:784, unhandled system error, NCCL "
        "version 2.7.8",
    )


def test_what_cuda_refused_nccl_is_told_instead_of_an_unhandled_error() -> None:
    assert causes(
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2",
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        "Last error:",
        "Cuda failure 217 'peer access is not supported between these two devices'",
    ) == [
        (
            "exception",
            "NCCL: Cuda failure 217 'peer access is not supported between these two devices'",
        )
    ]


def test_an_exception_of_nccl_without_its_traceback_explains_the_exit_code_behind_it() -> None:
    assert causes(
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:911, unhandled system error, NCCL "
        "version 2.7.8",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 "
        "(pid: 31335) of binary: /opt/venv/bin/python",
    ) == [
        (
            "exception",
            "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:911, unhandled system error",
        )
    ]


def test_an_exception_that_names_its_rank_is_of_that_rank() -> None:
    found = problems(
        "Traceback (most recent call last):",
        '  File "/data/train.py", line 101, in <module>',
        "AssertionError: Rank 3: no gradient of bucket 7 is finite. Device: 3, node: node7",
    )
    assert found["rank"].tolist() == [3]


def test_the_process_that_spawned_others_ends_of_what_one_of_them_raised() -> None:
    assert causes(
        "Traceback (most recent call last):",
        '  File "/opt/venv/torch/multiprocessing/spawn.py", line 163, in join',
        "torch.multiprocessing.spawn.ProcessRaisedException: ",
        "",
        "-- Process 1 terminated with the following error:",
        "Traceback (most recent call last):",
        '  File "/data/train.py", line 4, in worker',
        "ValueError: no",
    ) == [("exception", "ValueError: no")]


@pytest.mark.parametrize("prefix", ["", "    ", "> ", "worker-1: ", "[rank3]: "])
def test_a_box_of_rich_is_read_behind_whatever_stands_in_front_of_its_lines(prefix: str) -> None:
    lines = (
        "╭────── Traceback (most recent call last) ──────╮",
        "│ /data/train.py:353 in <module>                │",
        "╰───────────────────────────────────────────────╯",
        "ValueError: no",
    )
    assert causes(*(prefix + line for line in lines)) == [("exception", "ValueError: no")]


def test_collectives_that_do_not_match_are_no_timeout() -> None:
    words = said(
        "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE), but Rank 1 is "
        "running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=BROADCAST)."
    )
    assert words.startswith("Ranks called collectives that do not match")
    assert "rank 0 called ALLREDUCE, rank 1 called BROADCAST" in words
    assert "timed out" not in words


def test_what_a_kernel_found_wrong_comes_before_that_something_was() -> None:
    found = causes(
        "Indexing.cu:1146: indexSelectLargeIndex: block: [35,0,0], thread: [64,0,0] Assertion "
        "`srcIndex < srcSelectDimSize` failed.",
        "RuntimeError: CUDA error: device-side assert triggered",
    )
    assert found == [("exception", "Assertion `srcIndex < srcSelectDimSize` failed")]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("train.py: error: unrecognized arguments: --x", "error: unrecognized arguments: --x"),
        ("Error: Missing option '--steps'.", "Missing option '--steps'."),
        ("Could not override 'a.b'. No match in config.", "Could not override 'a.b'."),
    ],
)
def test_a_command_line_that_is_not_taken_ends_a_script(line: str, text: str) -> None:
    assert causes(line) == [("wrong-arguments", text)]


@pytest.mark.parametrize(
    "line",
    [
        "ops.cu(12): error: argument of type int is incompatible with parameter of type float",
        "gcc: error: unrecognized command-line option '-fx'",
        "retrying with --safe, since 'No such option: safe' was answered",
    ],
)
def test_what_compilers_say_of_arguments_ends_no_script(line: str) -> None:
    assert causes(line) == []


@pytest.mark.parametrize("signal", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL"])
def test_a_worker_of_ray_says_of_itself_that_it_crashed(signal: str) -> None:
    lines = [
        f"(Actor pid=41, ip=10.0.0.7) *** {signal} received at time=1744000000 on cpu 12 ***",
        "(Actor pid=41, ip=10.0.0.7) PC: @     0x7ff700bd09fc  (unknown)  pthread_kill",
    ]
    told = problems(*lines)
    assert [*told["kind"]] == ["signal"]
    assert [*told["host"]] == ["10.0.0.7"]


def test_a_worker_that_ends_itself_behind_a_timeout_is_not_its_cause() -> None:
    found = causes(
        "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)",
        "*** SIGABRT received at time=1744000000 on cpu 12 ***",
    )
    assert found == [("watchdog", "OpType=ALLREDUCE")]


def test_a_crash_that_ucx_reports_is_the_cause_and_the_launcher_s_code_is_not() -> None:
    found = causes(
        "[node7:4101:0:4230] Caught signal 11 (Segmentation fault: address not mapped to object)",
        "==== backtrace (tid: 4230) ====",
        "[2026-04-02 10:43:21,943] [ERROR] [launch.py:341:sigkill_handler] ['python3', '-u', "
        "'train.py'] exits with return code = -11",
    )
    assert found == [("signal", "Segmentation fault: address not mapped to object")]
