"""Memory that is freed and used again."""

from __future__ import annotations

import subprocess
import sys

import pytest

GIVEN = """
import resource, sys
from dsprof.heap import keep_freed
if sys.argv[1] == "keep":
    keep_freed()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    b"x" * (64 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_pages_that_were_freed_are_not_asked_of_the_kernel_again() -> None:
    kept, returned = (
        int(subprocess.check_output([sys.executable, "-c", GIVEN, word], text=True))
        for word in ("keep", "return")
    )
    assert kept < returned / 4
