"""The code that loads this dsprof into a process of training, and nothing else that is installed.

It is text because it runs where there may be no dsprof: as a `sitecustomize.py` in every process
that a command starts (`launch`), or between two instructions of one that already trains (`join`).
Any Python may run it, so its syntax is valid in every version from 2.7 on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import dsprof

#: What a worker of a data loader answers.
MAKES_BATCHES: Final = "it makes batches for the process that trains: name that one"
#: What one answers that was reached in a place where no hook may come.
NOT_NOW: Final = "it could not begin right now, as in a hook of an optimizer: try again"

_LOADER: Final = '''\
"""Written by dsprof attach: records this process's training. Safe to delete afterwards."""

import os
import sys

# Names of files are bytes: another locale than that of dsprof attach has other letters for them.
text = getattr(os, "fsdecode", str)
home = text({home!a})


class Home(object):
    """Finds this dsprof, wherever it is installed, and nothing else that is there."""

    def find_spec(self, name, path=None, target=None):
        init = os.path.join(home, "__init__.py")
        if name == "dsprof" and os.path.isfile(init):
            from importlib.machinery import PathFinder  # importlib.util would take 5 ms

            return PathFinder.find_spec(name, [os.path.dirname(home)])


def wait():
    """Until torch has been imported: other programs run as ever."""
    if sys.version_info < (3, 9):
        raise ImportError("Python 3.9 or later is needed, this is " + sys.version.split()[0])
    out = os.environ.setdefault("DSPROF_OUT", text({out!a}))
    os.environ.setdefault("DSPROF_LAUNCH", {launch!a})
    if "dsprof" not in sys.modules:
        sys.meta_path.insert(0, Home())
    from dsprof.imports import when_imported

    def begin(torch):
        try:
            from dsprof.hook.attach import attach

            attach(out=out)
        except Exception as error:
            tell(str(error))

    when_imported("torch", begin)
    when_imported("deepspeed", lambda _: None)  # imports torch: its own end is asked for in there


def tell(why):
    why = " ".join(why.split())
    if not os.path.isdir(home):
        why += " (dsprof attach ran from " + home + ", which cannot be read here)"
    try:
        sys.stderr.write("dsprof: nothing is recorded: " + why + "\\n")
    except Exception:
        pass
'''

_AT_STARTUP: Final = '''

class Unrecorded(object):
    """Says why as training begins: of other programs nobody wants to hear."""

    def __init__(self, why):
        self.why = why

    def find_spec(self, name, path=None, target=None):
        if name == "torch" and self.why:
            why, self.why = self.why, ""
            tell(why)

    find_module = find_spec


here = os.path.dirname(__file__)
sys.path[:] = [path for path in sys.path if path != here]

try:
    wait()
except Exception as error:
    sys.meta_path.insert(0, Unrecorded(str(error)))

# The one that Python would have run without us. It may fail, as it would have.
own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", own)
'''

#: Answers in a file: nothing, or why nothing is recorded. It runs with names of its own.
_JOINED: Final = '''

answer = text({answer!a})
said = []
own_tell = tell


def tell(why):
    own_tell(why)
    said.append(" ".join(why.split()))


def known(attach):
    if not hasattr(attach, "stop_waiting"):
        raise ImportError("it has loaded another dsprof, which cannot do this: " + attach.__file__)
    return attach


def join():
    """Record the training of this process, which has already begun."""
    if "torch" not in sys.modules:
        raise ImportError("it has not imported torch")
    for name in "torch", "deepspeed", "torch.distributed.fsdp":
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if getattr(spec, "_initializing", False):
            raise ImportError("it is just importing " + name + ": try again")
    if makes_batches():
        said.append({worker!a})
        return
    attach = sys.modules.get("dsprof.hook.attach")
    before = attach and known(attach).recorded_in()
    if before and os.path.abspath(before) != os.path.abspath(text({out!a})):
        said.append("it is already recorded, in " + before)
        return
    if attach:
        attach.stop_waiting()
    if attach and attach.is_searching():
        return
    told = dict(DSPROF_OUT=text({out!a}), DSPROF_LAUNCH={launch!a})
    earlier = dict((name, os.environ.get(name)) for name in told)
    os.environ.update(told)
    wait()
    attach = sys.modules["dsprof.hook.attach"]
    if said or not attach.is_searching():
        restore(earlier)
        if not said:
            said.append({not_now!a})
        return
    attach.joined(lambda: restore(earlier), text({calls!a}), [text(one) for one in {all_calls!a}])


def restore(names):
    """Leave the environment as it was: processes that start later are not ours to record."""
    for name, value in names.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def makes_batches():
    """Whether this is a worker of a data loader."""
    about = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    return about is not None and about() is not None


def leave():
    """End what is recorded of this process."""
    attach = sys.modules.get("dsprof.hook.attach")
    if makes_batches():
        said.append({worker!a})
    elif attach is None or not known(attach).detach_all():
        said.append("it was not recorded")


try:
    {action}()
except Exception as error:
    tell(str(error))
try:
    with open(answer + ".new", "w") as file:
        file.write("\\n".join(said))
    os.rename(answer + ".new", answer)
except Exception:  # it would be raised in training
    pass
'''


def startup(out: Path, launch: str) -> str:
    """A `sitecustomize.py` that records the training of its process to `out`."""
    return (_LOADER + _AT_STARTUP).format(home=_home(), out=os.fsencode(out), launch=launch)


def joining(out: Path, launch: str, answer: Path, ranks: Sequence[Path]) -> str:
    """Lines for a process that already trains: they begin to record it to `out`, and write to the
    file `answer` why they could not. `ranks` are the answers of all that are asked with it.
    """
    return _lines(out, launch, answer, ranks, "join")


def leaving(answer: Path) -> str:
    """Lines that end what is recorded of their process, and write to the file `answer`."""
    return _lines(Path(), "", answer, [], "leave")


def calls_of(answer: Path) -> Path:
    """Where a rank that answers in this file notes how many collectives there were (`Together`)."""
    return answer.with_name(f"{answer.name}.calls")


def _lines(out: Path, launch: str, answer: Path, ranks: Sequence[Path], action: str) -> str:
    return (_LOADER + _JOINED).format(
        home=_home(),
        out=os.fsencode(out),
        launch=launch,
        answer=os.fsencode(answer),
        calls=os.fsencode(calls_of(answer)),
        all_calls=[os.fsencode(calls_of(one)) for one in ranks],
        action=action,
        worker=MAKES_BATCHES,
        not_now=NOT_NOW,
    )


def _home() -> bytes:
    """Names of files are bytes: another locale than ours has other letters for them."""
    return os.fsencode(Path(dsprof.__file__).absolute().parent)
