"""An exception that is of the environment is advised on what it lacks there."""

from __future__ import annotations

import pytest

from dsprof.findings.failures.cures import cures

LAUNCHED = "the command of the job"


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("RuntimeError: Ninja is required to load C++ extensions", "PATH on that host"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "PATH on that host"),
        ("AssertionError: Unable to JIT load the async_io op due to it", "ds_report on that host"),
        ("ImportError: /opt/flash.so: undefined symbol: _ZN3c104", "the library that the message"),
        ("OSError: libcudart.so.11.0: cannot open shared object file: No such", "LD_LIBRARY_PATH"),
        ("ImportError: /u/cpu_adam.so: cannot open shared object file", "TORCH_EXTENSIONS_DIR"),
        ("RuntimeError: CUDA error: invalid device ordinal", "processes per node, CUDA_VISIBLE"),
        ("RuntimeError: No CUDA GPUs are available", "nvidia-smi on that host"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "nvidia-smi on that host"),
        ("RuntimeError: Error 802: system not yet initialized", "nvidia-fabricmanager"),
        ("RuntimeError: cuda runtime error (802) : system not yet initialized at", "nvidia-fabric"),
        ("RuntimeError: CUDA error: system not yet initialized", "nvidia-fabricmanager"),
        ("RuntimeError: Error 803: system has unsupported display driver", "LD_LIBRARY_PATH, cuda"),
        ("RuntimeError: CUDA error: all devices are busy or unavailable", "nvidia-smi on"),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "torch"),
        ("KeyError: 'LOCAL_RANK'", LAUNCHED),
        ("ValueError: environment variable RANK expected, but not set", LAUNCHED),
        ("_pickle.UnpicklingError: invalid load key, '<'.", "the file that was read"),
        ("ModuleNotFoundError: No module named 'megatron.core'", "version of megatron"),
        ("python3: No module named deepspeed", "python on that host"),
        ("ModuleNotFoundError: No module named 'mpi4py'", "launcher"),
        ("ModuleNotFoundError: No module named 'flash_attn'", "flash_attn"),
        ("ValueError: Tokenizer class New does not exist or is not currently imported.", "transf"),
    ],
)
def test_what_the_environment_lacks_is_advised_on(text: str, setting: str) -> None:
    (advice,) = cures("exception", text)
    assert advice.setting.startswith(setting)


@pytest.mark.parametrize("text", ["KeyError: 'RANKS'", "ValueError: no kernel", "ImportError: no"])
def test_another_exception_is_not_of_the_environment(text: str) -> None:
    assert cures("exception", text) == ()


def test_a_name_that_a_file_of_the_job_s_own_lacks_is_for_its_author() -> None:
    assert cures("exception", "ImportError: cannot import name 'f' from 'm' (/home/u/m.py)") == ()
