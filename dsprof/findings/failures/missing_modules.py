"""What helps against an import that failed, by what Python says of it."""

from __future__ import annotations

import re
from typing import Final

from dsprof.findings.finding import Advice

_MISSING: Final = re.compile(
    r"(?:ModuleNotFound|Import)Error: No module named '(?P<module>[\w.]{1,200})'"
    r"(?P<file>; '[\w.]{1,200}' is not a package)?"
)
#: Of an installed package: what is missing in a user's own file is for the user to write.
_NAME: Final = re.compile(
    r"ImportError: cannot import name '(?P<name>\w{1,200})' from '(?P<module>[\w.]{1,200})' "
    r"\([^)]{0,400}\b(?:site|dist)-packages\b"
)


def against_import(text: str) -> Advice | None:
    """None if the exception is of another kind, or nothing but the importing code is at fault.

    Python imports packages from the outside in. If it misses a module of one, it has found that
    package: it is another version than the one that was wanted, or another package of the name.
    """
    if missing := _MISSING.match(text):
        module = missing["module"]
        package, _, inner = module.partition(".")
        if missing["file"]:
            why = f"what was found first as {package} is a single file, which hides the package"
            return Advice(f"{package}.py", "", "another name, or not in sys.path", why)
        if not inner:
            why = "on every host: where another Python is first, its packages are others"
            return Advice(package, "", "installed for the Python that ran", why)
        return _another_version(package, f"no {module}")
    if name := _NAME.match(text):
        package, _, _ = name["module"].partition(".")
        return _another_version(package, f"no {name['name']} in {name['module']}")
    return None


def _another_version(package: str, lacks: str) -> Advice:
    why = f"the one that was found has {lacks}"
    return Advice(package, "", "a version that fits what imports it", why)
