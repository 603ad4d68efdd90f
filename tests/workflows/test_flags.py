"""Flags of unusual rows beside their scores: what they mean, and how many there are against expectation."""

import warnings
from functools import partial

import numpy as np
import pytest
import xarray as xr
import zarr

import bigkpca
from bigkpca.errors import CorruptionError, FlaggedShareWarning, SpecError
from bigkpca.numerics.calibration import Calibration
from bigkpca.workflows.flags import FlaggedShare, flagged_rows
from tests.data.cases import refused
from tests.helpers.commands import run
from tests.helpers.nights import some_rows

pytestmark = pytest.mark.filterwarnings("ignore::bigkpca.errors.FlaggedShareWarning")
ALPHA = 0.05


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The path of a model with 200 calibration rows."""
    path = tmp_path_factory.mktemp("flags") / "model.zarr"
    bigkpca.fit(some_rows(700, 0), path, n_components=3, sigma="5 median", size=30, calibration_rows=200)
    return str(path)


@pytest.fixture(scope="module")
def rows():
    """Rows of the distribution of the fit, of which each fifth is wider."""
    X = some_rows(100, 1)
    X[::5] *= 2
    return X


def flagged(fitted, X, out, **options):
    """The statistics and flags that a transform writes."""
    bigkpca.transform(fitted, X, out, flag=ALPHA, **options)
    group = zarr.open_group(out)
    return group["statistic"][:], group["flagged"][:]


@pytest.mark.parametrize("options", [{}, {"block_rows": 16, "residual": True}])
def test_a_row_is_flagged_if_its_rank_among_the_calibration_rows_is_unlikely(fitted, rows, tmp_path, options):
    out = tmp_path / "scores.zarr"
    statistic, flags = flagged(fitted, rows, out, **options)
    model = bigkpca.load(fitted)
    Q, T2, both = bigkpca.arrays.statistics(model, rows).compute().T
    np.testing.assert_allclose(statistic, both, rtol=1e-5)
    p = model.calibration.p_values(np.array([Q, T2]))[2]
    for i, unlikely in enumerate(p <= ALPHA):
        rarities = model.calibration.rarities(np.array([[Q[i]], [T2[i]]]))[:, 0]
        most = "distance" if rarities[1] > rarities[0] else "residual"
        assert flags[i] == (["residual", "distance"].index(most) + 1 if unlikely else 0)
    assert set(flags) == {0, 1, 2}
    found = xr.open_zarr(out).flagged  # readers learn the meaning of flags from their attributes
    meanings = {0: "not_flagged", 1: "residual", 2: "distance"}
    assert dict(zip(found.flag_values, found.flag_meanings.split(), strict=True)) == meanings
    assert found.dims == ("row",)
    assert "residual" in zarr.open_group(out)
    if not options:
        np.testing.assert_array_equal(zarr.open_group(out)["scores"], bigkpca.arrays.scores(model, rows).compute())


def test_another_share_is_another_output_and_damage_is_found(fitted, rows, tmp_path):
    out = tmp_path / "s.zarr"
    before = flagged(fitted, rows, out, block_rows=16)
    for other in (0.1, None):
        transform = partial(bigkpca.transform, block_rows=16, flag=other)
        refused(transform, (fitted, rows, out, SpecError, rf"flag is 0\.05 there and {other} here"))
    assert bigkpca.info(out)["flag"] == ALPHA
    (out / "flagged" / "c" / "3").unlink()
    for work in (lambda: bigkpca.verify(out), lambda: flagged(fitted, rows, out, block_rows=16)):
        refused(work, (CorruptionError, "flagged/c/3 is missing"))
    np.testing.assert_array_equal(flagged(fitted, rows, out, block_rows=16, overwrite=True), before)


def test_a_share_that_cannot_be_flagged_is_refused(fitted, rows, tmp_path, model, digits):
    for flag, message in (
        (0.001, r"flag=0\.001: with 200 calibration rows, it must be at least 0\.01 and below 1"),
        ("1%", r"flag='1%' is not a share of rows, such as 0\.01"),
        (5, r"flag=5: with 200 calibration rows, it must be at least 0\.01 and below 1"),
    ):
        refused(partial(bigkpca.transform, flag=flag), (fitted, rows, tmp_path / "s.zarr", SpecError, message))
    message = r"no calibration rows, .*: fit it with calibration_rows=2000"
    refused(partial(bigkpca.transform, flag=0.01), (model, digits, tmp_path / "s.zarr", SpecError, message))
    assert not list(tmp_path.glob("s.zarr*"))


def test_a_transform_warns_where_chance_does_not_explain_how_many_rows_are_flagged(fitted, rows, tmp_path):
    with pytest.warns(FlaggedShareWarning, match=r"of 100 rows flagged \(\d+%\); .* chance: some rows are unlike"):
        flagged(fitted, 3 * rows, tmp_path / "a.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flagged(fitted, some_rows(300, 2), tmp_path / "b.zarr")
        flagged(fitted, some_rows(700, 0) / 9, tmp_path / "c.zarr")  # none of which is unusual


def test_the_most_unusual_rows_are_found_block_by_block(fitted, rows, tmp_path):
    out = tmp_path / "s.zarr"
    statistic, flags = flagged(fitted, rows, out, block_rows=16)
    found = flagged_rows(str(out), 5)
    order = sorted(np.flatnonzero(flags), key=lambda i: -statistic[i])[:5]
    assert found.numbers.tolist() == order
    np.testing.assert_array_equal(found.statistic, statistic[order])
    assert found.reasons == tuple(["", "residual", "distance"][flags[i]] for i in order)
    assert found.share == FlaggedShare(ALPHA, 100, np.count_nonzero(flags))
    bigkpca.transform(fitted, rows, tmp_path / "plain.zarr")
    assert flagged_rows(str(tmp_path / "plain.zarr")) is None
    zarr.open_group(out)["flagged"][order[0]] = 3
    refused(flagged_rows, (str(out), CorruptionError, "its array flagged has other values"))


def test_the_share_is_compared_with_its_range():
    calibration = Calibration(np.zeros((99, 1)), np.ones(1), np.arange(99.0)[:, None], np.arange(99.0))
    low, high = (round(1000 * share) for share in calibration.range(0.1, 1000, 0.9999))
    for count, beyond in ((low - 1, False), (high, False), (high + 1, True)):
        share = FlaggedShare(0.1, 1000, count)
        words = f"{count} of 1,000 rows flagged ({count / 10:.3g}%); expected at most 10%, or up to {high / 10:.3g}% by"
        more = ": some rows are unlike those of the fit" if beyond else ""
        assert share.compared(calibration) == f"{words} chance{more}"
        assert share.warning(calibration) == (share.compared(calibration) if beyond else None)


def test_rows_that_are_too_far_for_numbers_are_flagged(fitted, rows, tmp_path):
    X = np.vstack([rows[1:5].astype(float), np.full((1, 4), 1e200)])
    assert flagged(fitted, X, tmp_path / "s.zarr")[1].tolist() == [0, 0, 0, 0, 1]


def test_the_command_says_how_many_rows_are_flagged_and_which_are_the_most_unusual(fitted, rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    bigkpca.ingest(tmp_path / "rows.npy", tmp_path / "rows.zarr")
    out = tmp_path / "s.zarr"
    lines = run("transform", fitted, tmp_path / "rows.zarr", out, "--flag", "0.05").stdout.splitlines()
    found = flagged_rows(str(out))
    assert lines[3].startswith(f"{found.share.count} of 100 rows flagged ({found.share.count}%); expected at most 5%, ")
    assert lines[4].startswith("most unusual (limit ")
    assert lines[5].split() == ["row", "statistic", "reason"]
    assert [line.split()[::2] for line in lines[6:]] == [
        [str(number), reason] for number, reason in zip(found.numbers, found.reasons, strict=True)
    ]
