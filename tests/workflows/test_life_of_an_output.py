"""Commands in any order, cut off anywhere, over damaged files: what is published is what a serial model computes.

The machine keeps, for each output, the values that must be there. After every step it reads them all.
"""

import json
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import Phase, settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.ingesting import ingest
from bigkpca.storage.models import load_model, model_digest
from tests.data.cases import refused
from tests.helpers.cuts import Steps
from tests.helpers.disks import HARMS
from tests.helpers.fits import fit, scores

BLOCK = 32  # rows
LENGTHS = (90, 40, 32, 7)  # of the files, in the order in which they are added
ROWS = np.random.default_rng(0).normal(size=(sum(LENGTHS), 3))
OPTIONS = {"n_components": 3, "size": 12, "block_rows": BLOCK}
MAIN = {"m": "components", "s": "scores"}  # arrays
stops = st.one_of(st.none(), st.integers(0, 60))  # of a command: none, or after how many changes of the disk
seeds = st.integers(0, 1)


@cache
def serial_model(rows, seed):
    """The model of the first rows, fitted on one thread in memory."""
    return fit(ROWS[:rows], random_state=seed, **OPTIONS)


@dataclass(frozen=True)
class Published:
    """What is to be found at a path: what it was computed from, and its values."""

    key: str  # of all it depends on: equal where the same command has nothing to do
    serial: tuple[int, ...]  # rows of the fit, seed, rows that were transformed
    values: tuple[bytes, ...]
    damaged: bool = False


def values_of_model(model):
    return model.solution.eigenvalues.tobytes(), model.solution.components.tobytes()


class Life(RuleBasedStateMachine):
    """A dataset, a model and scores in one folder."""

    def __init__(self):
        super().__init__()
        self.at = Path(tempfile.mkdtemp(prefix="bigkpca-life-"))
        self.patches = pytest.MonkeyPatch()
        self.steps = Steps(self.patches)
        self.rows, self.files = 0, 0
        self.there = {}  # by the names of outputs

    def teardown(self):
        self.patches.undo()
        shutil.rmtree(self.at)

    def cut_off(self, run, stop):
        """Run, and be killed after so many steps; whether it came to its end."""
        most = 10**6 if stop is None else stop
        with self.steps.cut(most):
            run()
        return self.steps.count <= most

    @initialize()
    def first_rows(self):
        start = 0
        for number, length in enumerate(LENGTHS):
            np.save(self.at / f"{number}.npy", ROWS[start : start + length])
            start += length
        ingest([self.at / "0.npy"], self.at / "d", block_rows=BLOCK)
        self.rows, self.files = LENGTHS[0], 1

    @precondition(lambda self: self.files < len(LENGTHS))
    @rule(stop=stops)
    def append(self, stop):
        ended = self.cut_off(lambda: ingest([self.at / f"{self.files}.npy"], self.at / "d", append=True), stop)
        if not ended and open_rows(self.at / "d").shape[0] == self.rows:
            return
        self.rows += LENGTHS[self.files]
        self.files += 1

    @rule(seed=seeds, overwrite=st.booleans(), stop=stops)
    def fit(self, seed, overwrite, stop):
        key = json.dumps([self.rows_there(), seed])
        wanted = Published(key, (self.rows, seed), values_of_model(serial_model(self.rows, seed)))

        how = {"random_state": seed, "overwrite": overwrite, **OPTIONS}
        run = partial(bigkpca.fit, self.at / "d", self.at / "m", **how)
        self.carry_out("m", wanted, run, overwrite=overwrite, stop=stop)

    @precondition(lambda self: "m" in self.there)
    @rule(overwrite=st.booleans(), stop=stops)
    def transform(self, overwrite, stop):
        how = {"block_rows": BLOCK, "overwrite": overwrite}
        run = partial(bigkpca.transform, self.at / "m", self.at / "d", self.at / "s", **how)
        if self.there["m"].damaged:
            refused(run, (CorruptionError, r"/m\b"))
            return
        serial = (*self.there["m"].serial, self.rows)
        key = json.dumps([model_digest(load_model(str(self.at / "m"))), self.rows_there()])
        wanted = Published(key, serial, (scores(serial_model(*serial[:2]), ROWS[: self.rows]).tobytes(),))
        self.carry_out("s", wanted, run, overwrite=overwrite, stop=stop)

    def carry_out(self, name, wanted, run, *, overwrite, stop):
        """Run a command; what is published then is what was there, or what is wanted."""
        old = self.there.get(name)
        if old is not None and old.key != wanted.key and not overwrite:
            refused(run, (SpecError, "already holds"))
            return
        if old is not None and old.key == wanted.key and old.damaged and not overwrite:
            with suppress(CorruptionError):  # a fit loads the model that is there
                run()
            return
        if not self.cut_off(run, stop):
            if not (self.at / name).exists():  # removed before the new one takes its place
                self.there.pop(name, None)
            if self.read(name) != wanted.values:
                return
        else:
            # Where there is nothing to do, what a killed run of another request left may stay for that.
            idle = old is not None and old.key == wanted.key and not overwrite
            assert idle or not [path for path in self.at.iterdir() if path.name.startswith(f"{name}.")]
        self.there[name] = wanted

    @precondition(lambda self: self.whole())
    @rule(data=st.data(), harm=st.sampled_from(sorted(HARMS)))
    def damage(self, data, harm):
        name = data.draw(st.sampled_from(self.whole()))
        chunks = sorted(path for path in (self.at / name / MAIN[name] / "c").rglob("*") if path.is_file())
        HARMS[harm](data.draw(st.sampled_from(chunks)))
        self.there[name] = replace(self.there[name], damaged=True)

    def whole(self):
        return [name for name in sorted(self.there) if not self.there[name].damaged]

    @invariant()
    def published_is_whole(self):
        if not self.rows:
            return
        assert open_rows(self.at / "d").block(0, self.rows).tobytes() == ROWS[: self.rows].tobytes()
        for name in ("m", "s"):
            found = self.there.get(name)
            if found is None:
                assert not (self.at / name).exists()
            elif found.damaged:
                refused(bigkpca.verify, (self.at / name, CorruptionError, rf"/{name}\b"))
            else:
                bigkpca.verify(self.at / name)
                assert self.read(name) == found.values

    def read(self, name):
        """The values at a path; None where nothing is, or nothing that can be read."""
        if not (self.at / name).exists():
            return None
        try:
            if name == "m":
                return values_of_model(load_model(str(self.at / name)))
            bigkpca.verify(self.at / name)
        except CorruptionError:
            return None
        group = zarr.open_group(self.at / name, mode="r")
        return (np.asarray(group[MAIN[name]]).tobytes(),)

    def rows_there(self):
        return open_rows(self.at / "d").fingerprint()


# Not shrunk: a failure would take minutes. It prints its steps, which can be made fewer by hand.
HOW = {"deadline": None, "derandomize": True, "database": None, "phases": [Phase.generate]}
FULL, LONG = pytest.param(4, 15, marks=pytest.mark.full), pytest.param(100, 30, marks=pytest.mark.long)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("lives", "steps"), [(2, 10), FULL, LONG])
def test_any_life_of_an_output(lives, steps):
    stateful.run_state_machine_as_test(Life, settings=settings(max_examples=lives, stateful_step_count=steps, **HOW))
