"""Kill a command at each of its steps on disk, run it again, and compare with a run that nobody disturbed.

A step is what changes the disk: a file opened for writing, a folder made, something renamed or removed. Python tells of
each before it does it (`sys.addaudithook`), so that the command can be killed there; where a file is opened for
writing also right after, when it is there and empty. Commands run in processes forked from one that has imported the
package and done nothing else, which takes a tenth of the time of starting anew.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

from bigkpca.cli import main as run
from tests.helpers.commands import finished
from tests.helpers.cuts import CHANGES, WRITES
from tests.helpers.files import ROOT


def found_by(check, folder, **given):
    """What `swept` or `disturbed_nights` finds, in a process of its own."""
    command = sys.executable, "-m", __name__, check.__name__, folder
    return json.loads(finished(*command, input=json.dumps(given), cwd=ROOT).stdout)


def swept(folder, command, before, kept, timed=(), most=None):
    """Kill `command` at its stops, which runs in a folder where the commands of `before` ran already; what was found:
    the number of `steps`, how many `stops` were tried, and what was `bad` after which.

    After the stop, what is at each path of `kept` is as it was, or as the command makes it; folders may be gone where
    the command replaces its output, which it removes first. After the same command again, the folder is what an
    undisturbed run leaves, to the byte; but for times in JSON, and for the content of the `timed` files, whose names
    end so. Tried are all stops, or at most so many, evenly spread.

    `folder` holds the input of the first command; everything runs at one path in it, since outputs name the path of
    their input.
    """
    here, start, timed = folder / "here", folder / "start", tuple(timed)
    for each in before:
        assert _status(each, here) == 0, _printed(here)
    (here / _PRINTED).unlink(missing_ok=True)
    _copy(here, start)
    steps = _counted(command, here)
    wanted, old, stops, bad = _untimed(here, timed), _untimed(start, timed), 0, []
    most = most or steps
    for stop in sorted({1 + (2 * i + 1) * steps // (2 * most) for i in range(most)}):
        _copy(start, here)
        status = _status(command, here, stop)
        if status == 0:
            continue  # it had fewer steps than before, as threads may share them otherwise
        if status != -signal.SIGKILL:
            bad.append(f"stop {stop}: before it, the command ended with {status}: {_printed(here)}")
            continue
        stops += 1
        left = _untimed(here, timed)
        for name in kept:
            now, *known = (
                [(path, held[path]) for path in held if f"{path}/".startswith(f"{name}/")]
                for held in (left, old, wanted)
            )
            removed = not now and name.endswith(".zarr") and "--overwrite" in command
            if now not in known and not removed:
                bad.append(f"stop {stop}: {name} is neither what it was nor what it is to be")
        status, again = _status(command, here), _untimed(here, timed)
        if status:
            bad.append(f"stop {stop}: the same command ends with {status}: {_printed(here)}")
        elif again != wanted:
            bad.append(f"stop {stop}: {_difference(again, wanted)}")
    return {"steps": steps, "stops": stops, "bad": bad}


def disturbed_nights(folder, arrivals, command, growing, seed):
    """Run `command` after each of the `arrivals`, and again in the same folder with kills at random stops; how many
    `kills` there were, and what was `bad` in the end: anything but the bytes of the first time, apart from times and
    numbers of runs. `growing` is what the arrivals write, which the second time has the same bytes and times."""
    here, kept, rng, kills, steps = folder / "here", folder / "kept", random.Random(seed), 0, []
    _copy(here, folder / "start")
    for number, arrival in enumerate(arrivals):
        assert _status(arrival, here) == 0, _printed(here)
        _copy(here / growing, kept / str(number))
        steps.append(_counted(command, here))
    wanted, bad = _untimed(here, (".runs.jsonl", ".prom")), []
    _copy(folder / "start", here)
    for number in range(len(arrivals)):
        _copy(kept / str(number), here / growing)
        for _ in range(rng.randint(1, 4)):
            status = _status(command, here, rng.randint(1, steps[number]))
            kills += status == -signal.SIGKILL
            if status not in (0, -signal.SIGKILL):
                bad.append(f"night {number}: the command ended with {status}: {_printed(here)}")
        if status := _status(command, here):
            bad.append(f"night {number}: the same command ends with {status}: {_printed(here)}")
    again = _untimed(here, (".runs.jsonl", ".prom"))
    if again != wanted:
        bad.append(_difference(again, wanted))
    return {"kills": kills, "bad": bad}


_PRINTED = "printed.txt"
# Times in the record of a run, and its number, which counts those that were killed.
_TIMES = rb'"(started|finished)": "[^"]*"|"(fit|extract|total)": [\d.e-]+|"run": \d+'


def _untimed(folder, timed):
    """Files below a folder, without times: bytes, or True for those that hold little else; False for empty folders."""
    held = {}
    for path in sorted(folder.rglob("*")):
        if path.name != _PRINTED and (path.is_file() or not any(path.iterdir())):
            plain = path.is_file() and not path.name.endswith(timed)
            held[str(path.relative_to(folder))] = re.sub(_TIMES, b"", path.read_bytes()) if plain else path.is_file()
    return held


def _difference(left, wanted):
    more, gone = sorted(left.keys() - wanted.keys()), sorted(wanted.keys() - left.keys())
    other = sorted(name for name in left.keys() & wanted.keys() if left[name] != wanted[name])
    return f"left behind {more[:3]}, missing {gone[:3]}, other bytes in {other[:3]}"


def _printed(folder):
    return (folder / _PRINTED).read_text()[-300:].replace("\n", " | ")


def _copy(folder, to):
    # Times too: they are part of what a run remembers of its input.
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to, copy_function=shutil.copy2)


def _status(command, folder, stop=None):
    """Run the command in `folder`, until it is killed at this stop, if at any; how it ended."""
    return _in_child(folder, lambda: _run_until(command, stop))


def _counted(command, folder):
    """Run the command in `folder`; how many stops it has."""
    counts = folder.with_name("steps")
    status = _in_child(folder, lambda: counts.write_text(str(_run_until(command, None))))
    assert status == 0, _printed(folder)
    return int(counts.read_text())


def _run_until(command, stop):
    """Run the command until it is killed at this stop, if at any; the number of its stops."""
    steps = _Steps(stop)
    sys.addaudithook(steps)
    run(command, standalone_mode=False)
    steps.counting = False
    return steps.number


@dataclass
class _Steps:
    """An audit hook that counts stops, and kills this process at one of them."""

    stop: int | None
    number: int = 0
    counting: bool = True

    def __call__(self, event, arguments):
        if self.counting and event in CHANGES:
            self._step()
        if self.counting and event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
            path, _, flags = arguments
            if isinstance(path, int) or str(path).startswith(("/dev/", "/proc/")):
                return
            self._step()
            if self.stop == self.number + 1:  # the file is there, and nothing is in it
                self.counting = False
                os.close(os.open(path, flags | os.O_CREAT, 0o666))
            self._step()

    def _step(self):
        self.number += 1
        if self.number == self.stop:
            os.kill(os.getpid(), signal.SIGKILL)


def _in_child(folder, work):
    """Run in a forked process, in `folder`; its exit code, negative for a signal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, of which there are none but BLAS's own
        child = os.fork()
    if not child:
        code = 1
        try:
            os.chdir(folder)
            printed = os.open(_PRINTED, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            work()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main():
    check, folder, given = sys.argv[1], Path(sys.argv[2]).resolve(), json.load(sys.stdin)
    import bigkpca.ingesting as ingesting  # what commands import when they run, imported once

    ingesting._CHUNK_BYTES, ingesting._HELD_BYTES = 1300, 1  # several chunks of 32 rows, each written by itself
    if {"compare", "report"} & {command[0] for command in (given["command"], *given.get("before", []))}:
        import bigkpca.comparing
        import bigkpca.reporting  # noqa: F401
    json.dump({"swept": swept, "disturbed_nights": disturbed_nights}[check](folder, **given), sys.stdout)


if __name__ == "__main__":
    main()
