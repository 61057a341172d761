"""`dsprof attach` in front of a job whose script knows nothing of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dsprof
from dsprof.errors import DsprofError
from dsprof.hook.entering.launch import prepare
from dsprof.hook.entering.launch import run as launch
from dsprof.recording import launches
from dsprof.recording.launches import FOLDER
from tests.hook.forked import free_port
from tests.hook.jobs_of import JOBS, PATHS, ROOT, interpreter
from tests.hook.rows import Rows, folder

STEPS = 4
DEEPSPEED = ("-m", "deepspeed.launcher.runner", "--num_accelerators", "2", "--no_local_rank")
ACCELERATE = (
    "-m", "accelerate.commands.launch", "--use_deepspeed", "--num_processes", "2",
    "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
)  # fmt: skip

#: Beginnings of the variables that DeepSpeed's launcher forwards to other nodes.
FORWARDED = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")


def start(
    out: Path, kind: str, launcher: tuple[str, ...], more: dict[str, str]
) -> subprocess.Popen[str]:
    python = interpreter()
    command = [sys.executable, "-m", "dsprof.hook.entering.launch", out / "run", python, *launcher,
               JOBS / "bare.py", out, kind]  # fmt: skip
    environment = os.environ | {
        "PYTHONPATH": PATHS,
        "OMP_NUM_THREADS": "1",
        "TORCH_FR_BUFFER_SIZE": "2000",  # else PyTorch 2.8's Flight Recorder is off
        "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
        **more,
    }
    return process(command, environment)


def process(command: list[Any], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(map(str, command)), env=environment, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(processes: list[subprocess.Popen[str]]) -> None:
    """All of them well, and without a word of ours."""
    said = [one.communicate(timeout=240)[1] for one in processes]
    failed = [text for one, text in zip(processes, said, strict=True) if one.returncode]
    assert not failed, "\n".join(text[-3000:] for text in failed)
    assert not any("dsprof:" in text for text in said)


def recorded(out: Path) -> list[Rows]:
    """Both ranks of one launch to their end: they imported nothing of ours that is heavy, and the
    user's own startup file ran in each."""
    ranks = folder(out / "run")
    assert [rank.header["rank"] for rank in ranks] == [0, 1]
    assert all(rank.ended for rank in ranks)
    for number in (0, 1):
        result = json.loads((out / f"result-{number}.json").read_text(encoding="utf-8"))
        assert result == {"imported": [], "chained": True}
    assert ranks[0].header["launch"] == ranks[1].header["launch"] != ""
    return ranks


def test_a_model_is_found_under_accelerates_launcher(tmp_path: Path) -> None:
    interpreter("accelerate")
    ended([start(tmp_path, "ddp", (*ACCELERATE, "--main_process_port", free_port()), {})])
    assert whole(recorded(tmp_path))


def whole(ranks: list[Rows]) -> bool:
    """Both ranks of one launch; a model is found at the end of step 1, and 2 keeps its number."""
    steps = [[row.step for row in rank.steps] for rank in ranks]
    return (
        [rank.header["rank"] for rank in ranks] == [0, 1]
        and steps == [list(range(2, STEPS + 1))] * 2
        and ranks[0].header["launch"] == ranks[1].header["launch"]
    )


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[Rows]:
    """Ranks of two nodes, each with a `dsprof attach` of its own, which knows nothing of the
    other's; a model under FSDP 1 is trained, whose blocks are wrapped, too."""
    out, port = tmp_path_factory.mktemp("nodes"), free_port()
    nodes = [
        start(
            out,
            "fsdp1",
            ("-m", "torch.distributed.run", "--nnodes", "2", "--node_rank", str(node),
             "--master_addr", "127.0.0.1", "--master_port", port, "--nproc_per_node", "1"),
            {"DSPROF_LAUNCH": f"of node {node}"},
        )
        for node in range(2)
    ]  # fmt: skip
    ended(nodes)
    return recorded(out)


def test_two_nodes_that_were_started_by_hand_are_one_launch(nodes: list[Rows]) -> None:
    assert whole(nodes)


def test_a_model_under_fsdp_1_is_found_as_a_whole(nodes: list[Rows]) -> None:
    for rank in nodes:
        forwards = [row.step for row in rank.spans if row.path == "forward"]
        assert forwards == [row.step for row in rank.steps]
        assert rank.config["collectives_seen"] != 0
        assert rank.unseen == 0


def test_processes_that_a_script_spawns_are_recorded(tmp_path: Path) -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ended([start(tmp_path, "spawn", (), where)])
    assert whole(folder(tmp_path / "run"))


#: What starts ranks on other nodes, and the names that it gives them. Ranks do not know of the
#: names of others: the first has those of one here, and the other those of the other.
NAMES = {
    "pdsh": ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Rows]:
    """Of ranks to which nothing but PYTHONPATH was brought, as DeepSpeed's launcher starts them
    on other nodes; and with the names that srun gives. They train under FSDP 2."""
    out = tmp_path_factory.mktemp("elsewhere")
    prepared = prepare(out / "run", {"PYTHONPATH": PATHS}, "one")
    given = {name: text for name, text in prepared.items() if name.startswith(FORWARDED)}
    given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "PATH": os.environ["PATH"]}
    command = [interpreter("torch"), JOBS / "bare.py", out, "fsdp2"]
    told = [
        dict(zip(names, (str(n), str(n), "2"), strict=True))
        for n, names in enumerate(NAMES.values())
    ]
    ended([process(command, given | names) for names in told])
    return folder(out / "run")


def test_pythonpath_is_all_that_must_reach_a_rank(ranks: list[Rows]) -> None:
    assert whole(ranks)
    assert [rank.header["local_rank"] for rank in ranks] == [0, 1]


def test_a_model_is_found_at_its_optimizers_first_step_and_the_next_is_its_second(
    ranks: list[Rows],
) -> None:
    for rank in ranks:
        assert [row.step for row in rank.steps] == list(range(2, STEPS + 1))
        assert {"forward", "backward", "step"} <= {row.path for row in rank.spans}
        assert rank.collectives


def test_an_elastic_restart_is_another_launch(tmp_path: Path) -> None:
    """One rank, killed in its third step: two would have to find each other again over gloo,
    where both may wait for ever, with a hook or without."""
    alone = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1")
    ended([start(tmp_path, "dying", (*alone, "--max_restarts", "1"), {})])
    run = dsprof.load(str(tmp_path / "run"))
    steps = run.steps.groupby("segment", observed=True)["step"].max()
    assert list(steps.index) == [0, 1]
    assert steps[0] < steps[1] == STEPS


def test_a_rank_that_sleeps_between_its_phases_is_the_one_the_others_wait_for(
    tmp_path: Path,
) -> None:
    """The job of `make attach`, here under DeepSpeed's launcher: nothing is timed where the rank
    loses its time."""
    python = interpreter()
    done = subprocess.run(
        [sys.executable, "-m", "dsprof.hook.entering.launch", tmp_path / "run", python, *DEEPSPEED,
         "--master_port", free_port(),
         ROOT / "examples" / "train_zero.py", "--slow-rank", "1", "--steps", "20"],
        env=os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "dsprof:" not in done.stderr
    ranks = folder(tmp_path / "run")
    assert [rank.header["rank"] for rank in ranks] == [0, 1]
    assert ranks[0].header["launch"] == ranks[1].header["launch"] != ""
    verdict = dsprof.load(str(tmp_path / "run")).findings[0]
    assert (verdict.rule, verdict.ranks) == ("straggler-rank", (1,))


def test_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    assert launch([sys.executable, "-c", "raise SystemExit(7)"], tmp_path) == 7
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert launch([sys.executable, "-c", kill], tmp_path) == 128 + 9


def test_files_that_the_shell_opened_for_the_command_are_its_own_and_no_others(
    tmp_path: Path,
) -> None:
    """As by `--config <(cat a b)` in bash, or for the ranks of some `srun`."""
    with (tmp_path / "opened").open("w+") as opened:
        number = opened.fileno()
        code = f"import os; os.write({number}, b'written'); print(len(os.listdir('/proc/self/fd')))"
        os.set_inheritable(number, True)
        counting = [sys.executable, "-c", code]
        begun = [
            sys.executable,
            "-m",
            "dsprof.hook.entering.launch",
            str(tmp_path / "run"),
            *counting,
        ]
        told = [
            subprocess.run(command, check=True, stdout=subprocess.PIPE, pass_fds=[number]).stdout
            for command in (begun, counting)
        ]
        opened.seek(0)
        assert opened.read() == "written" * 2
    assert told[0] == told[1]


def test_a_script_that_names_no_interpreter_is_run_by_the_shell_as_ever(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text('test "$1" = "two words" && exit 7\n')
    script.chmod(0o755)
    assert launch([str(script), "two words"], tmp_path / "run") == 7


def test_a_command_that_does_not_exist_is_named_and_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    for command, why in (
        ("no-such-command", "No such file or directory"),
        ("/no/such/command", "No such file or directory"),
        (str(tmp_path / "text"), "Permission denied"),
    ):
        with pytest.raises(DsprofError, match=f"{command}: cannot be run: {why}"):
            launch([command], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DsprofError, match="cannot be written"):
        prepare(tmp_path / "file" / "run", {}, "one")


def test_the_users_pythonpath_stays_behind_ours(tmp_path: Path) -> None:
    found = prepare(tmp_path, {"PYTHONPATH": "/theirs", "OTHER": "1"}, "one")
    assert found["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / FOLDER), "/theirs"]
    assert found["OTHER"] == "1"


def test_a_folder_above_this_one_is_named_as_python_will_name_it(tmp_path: Path) -> None:
    """Python takes `..` out of its path: a name that keeps it is found again, without end."""
    (tmp_path / "here").mkdir()
    environment = prepare(tmp_path / "here" / ".." / "run", os.environ, "one")
    assert environment["PYTHONPATH"].startswith(str(tmp_path / "run"))
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.environ['DSPROF_OUT'])"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path / "run"), "")


def test_the_folder_that_is_asked_for_counts_and_not_the_one_of_the_environment(
    tmp_path: Path,
) -> None:
    out, other = str(tmp_path / "asked"), str(tmp_path / "other")
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.environ['DSPROF_OUT'])"],
        env=prepare(out, os.environ | {"DSPROF_OUT": other}, "one"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == out


def test_a_folder_that_has_a_colon_in_its_name_is_recorded_to(tmp_path: Path) -> None:
    """As times of day have it: PYTHONPATH cannot name such a folder."""
    out = tmp_path / "run-18:30" / "12:00"
    environment = prepare(out, os.environ, "one")
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.environ['DSPROF_OUT'])"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == (str(out), "")
    assert (tmp_path / f"{FOLDER}-run-18-30-12-00").is_dir()
    launches.end(out, "one", 0)
    assert launches.end_of(out, "one")


@pytest.mark.parametrize("name", ["my run", "it's", 'a "b', "a,b", "a%n", "$(true)", "a\nb", "é"])
def test_launchers_hand_on_where_the_startup_file_is_whatever_the_folder_is_called(
    name: str, tmp_path: Path
) -> None:
    """DeepSpeed's does so in lines of a shell, before 0.15.1 without quotes."""
    out = tmp_path / name / "a"
    place, *others = prepare(out, {"PYTHONPATH": ""}, "one")["PYTHONPATH"].split(os.pathsep)
    assert others == []
    assert not set(place) & set(" \n'\",%$();")
    line = f"export PYTHONPATH={place}; exec {sys.executable} -c "
    code = "'import os; print(ascii(os.environ[\"DSPROF_OUT\"]))'"
    done = subprocess.run(
        ["bash", "-c", line + code], env={}, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == (ascii(str(out)), "")


def test_the_startup_file_is_in_the_folder_where_nothing_can_be_written_beside_it(
    tmp_path: Path,
) -> None:
    (tmp_path / f"{FOLDER}-my-run").touch()
    environment = prepare(tmp_path / "my run", {}, "one")
    assert environment["PYTHONPATH"] == str(tmp_path / "my run" / FOLDER)
    assert (tmp_path / "my run" / FOLDER / "sitecustomize.py").is_file()
    (tmp_path / f"{FOLDER}-12-00").touch()
    with pytest.raises(DsprofError, match="12:00: cannot be written"):
        prepare(tmp_path / "12:00", {}, "one")


@pytest.mark.parametrize("coded", ["utf-8", "latin-1"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_folders_are_found_whatever_letters_the_locale_has(
    coded: str, locale: str, tmp_path: Path
) -> None:
    out = tmp_path / os.fsdecode("señal".encode(coded))
    home = tmp_path / os.fsdecode("año".encode(coded)) / "dsprof"
    shutil.copytree(ROOT / "dsprof", home, ignore=shutil.ignore_patterns("__pycache__"))
    foreign = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dsprof, "__file__", str(home / "__init__.py"))
        environment = prepare(out, os.environ, "one")
    code = """
import os, dsprof
for name in (os.environ["DSPROF_OUT"], os.path.dirname(dsprof.__file__)):
    print(os.fsencode(name).hex())
"""
    told = environment | foreign
    done = subprocess.run(
        [sys.executable, "-c", code], env=told, capture_output=True, text=True, check=True
    )
    names = [os.fsencode(name).hex() for name in (out, home)]
    assert (done.stdout.split(), done.stderr) == (names, "")


def test_jobs_that_begin_at_once_in_one_folder_keep_apart(tmp_path: Path) -> None:
    """The second one writes the startup file that the first one's ranks may be reading."""
    first = prepare(tmp_path, os.environ, "one")
    file = tmp_path / FOLDER / "sitecustomize.py"
    with file.open(encoding="ascii") as read:
        text = file.read_text(encoding="ascii")
        prepare(tmp_path, os.environ, "two")
        assert read.read() == text != file.read_text(encoding="ascii")
    assert list(file.parent.iterdir()) == [file]
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.environ['DSPROF_LAUNCH'])"],
        env=first, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "one\n"


_SIGNALLED = """
import os, signal, sys, time
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda number, _: print("got", number, flush=True))
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def test_signals_that_are_sent_to_us_are_the_commands_which_decides_to_end(tmp_path: Path) -> None:
    """Slurm sends SIGUSR1 before a job's time is over, a CI job that is cancelled gets SIGINT.

    What runs under nohup, as these tests may, gets no SIGHUP.
    """
    signals = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT]
    meant = [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]
    command = [sys.executable, "-m", "dsprof.hook.entering.launch", str(tmp_path),
               sys.executable, "-c", _SIGNALLED,
               *(str(int(number)) for number in meant)]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in meant:
            process.send_signal(number)
            assert process.stdout.readline() == f"got {int(number)}\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM


_DESCHEDULED = """
import subprocess, sys, time
from dsprof.hook.entering import launch

class Popen(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        time.sleep(0.5)

subprocess.Popen = Popen
sys.exit(launch.run(sys.argv[2:], sys.argv[1]))
"""


def test_a_signal_that_comes_as_the_command_begins_reaches_it(tmp_path: Path) -> None:
    """On a busy machine it may be asked for before we are back from starting it."""
    told_at_once = "trap 'echo got; exit 3' USR1; kill -USR1 $PPID; sleep 9 >&- & wait"
    done = subprocess.run(
        [sys.executable, "-c", _DESCHEDULED, str(tmp_path), "sh", "-c", told_at_once],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "got\n")


def test_a_command_goes_on_to_its_own_end_when_we_are_killed(tmp_path: Path) -> None:
    """No end of ours is one of the training: the kernel kills who is large, or who is near."""
    script = (
        "import sys; print('ready', flush=True); sys.stdin.read(); print('trained', flush=True)"
    )
    command = [
        sys.executable,
        "-m",
        "dsprof.hook.entering.launch",
        str(tmp_path),
        sys.executable,
        "-c",
    ]
    with subprocess.Popen(
        [*command, script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.wait(20) == -signal.SIGKILL
        process.stdin.close()
        assert process.stdout.readline() == "trained\n"
    assert list((tmp_path / FOLDER).glob("*.ended")) == []


def test_a_command_that_trains_nothing_is_told_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch([sys.executable, "-c", "print('no training')"], tmp_path) == 0
    said = capfd.readouterr()
    assert said.out == "no training\n"
    begin = f"dsprof: {tmp_path}: nothing was recorded ("
    assert said.err.startswith(f"{begin}a process that could not record has said why; if none did,")


def test_what_a_script_records_in_a_folder_below_is_recorded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.parent.mkdir(); p.touch()"
    file = tmp_path / "actor" / "rank-00000.1.dsprof"
    assert launch([sys.executable, "-c", make, str(file)], tmp_path) == 0
    assert capfd.readouterr().err == ""
    assert launch([sys.executable, "-c", "pass"], tmp_path) == 0
    assert "nothing was recorded" in capfd.readouterr().err


def test_what_lies_below_the_folder_is_not_walked_through_before_a_command_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With `--out .` all of a project's data may."""
    monkeypatch.setattr(Path, "rglob", lambda *_: pytest.fail("walked"))
    make = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"
    file = tmp_path / "rank-00000.1.dsprof"
    assert launch([sys.executable, "-c", make, str(file)], tmp_path) == 0
    assert capfd.readouterr().err == ""


def test_a_folder_that_is_removed_meanwhile_is_told_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    remove = f"import shutil; shutil.rmtree({str(tmp_path / 'run')!r})"
    assert launch([sys.executable, "-c", remove], tmp_path / "run") == 0
    assert capfd.readouterr().err.endswith("nothing was recorded (it was removed meanwhile)\n")


def test_a_process_without_torch_runs_as_ever(tmp_path: Path) -> None:
    """What it has of ours is what waits for torch, and what that imports it would have anyway."""
    environment = prepare(tmp_path, os.environ, "one")
    code = "import sys; print(*[name for name in sys.modules if name[:6] in ('dsprof', 'typing')])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == ["dsprof", "dsprof.imports"]
    assert done.stderr == ""
