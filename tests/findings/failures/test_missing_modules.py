"""An import that failed is advised by what Python says of it."""

from __future__ import annotations

import pytest

from dsprof.findings.failures.exceptions import against_exception
from dsprof.findings.failures.missing_modules import against_import

INSTALLED = "/opt/env/lib/python3.11/site-packages/torch/__init__.py"
ANOTHER = "a version that fits what imports it"


def test_a_package_that_is_not_there_is_to_be_installed() -> None:
    advice = against_import("ModuleNotFoundError: No module named 'flash_attn'")
    assert advice is not None
    assert (advice.setting, advice.to) == ("flash_attn", "installed for the Python that ran")


@pytest.mark.parametrize(
    ("text", "package", "lacks"),
    [
        (
            "ModuleNotFoundError: No module named 'deepspeed.runtime.fp16.onebit'",
            "deepspeed",
            "no deepspeed.runtime.fp16.onebit",
        ),
        (
            f"ImportError: cannot import name 'log' from 'torch.distributed.api' ({INSTALLED})",
            "torch",
            "no log in torch.distributed.api",
        ),
    ],
)
def test_a_package_that_lacks_a_part_is_of_another_version(
    text: str, package: str, lacks: str
) -> None:
    (advice,) = against_exception(text)
    assert (advice.setting, advice.to) == (package, ANOTHER)
    assert advice.why == f"the one that was found has {lacks}"


def test_a_file_that_hides_a_package_is_named() -> None:
    text = "ModuleNotFoundError: No module named 'logging.config'; 'logging' is not a package"
    advice = against_import(text)
    assert advice is not None
    assert advice.setting == "logging.py"


@pytest.mark.parametrize(
    "text",
    [
        "ImportError: cannot import name 'build' from 'models' (/home/u/job/models.py)",
        f"ImportError: cannot import name 'a' from partially initialized module 'b' ({INSTALLED})",
        "ValueError: No module named 'x'",
    ],
)
def test_what_only_the_code_that_imports_can_mend_is_advised_nothing(text: str) -> None:
    assert against_import(text) is None
