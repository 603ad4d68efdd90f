"""Paths are meant as they are: links, the home folder, and folders above."""

import numpy as np
import pytest

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.errors import SpecError
from bigkpca.ingesting.streaming import ingest
from tests.helpers import commands
from tests.helpers.disks import tree_bytes
from tests.storage.outputs import FIT, OTHERS, WRITES, X, every_write


@every_write
@pytest.mark.parametrize("path", ["o.zarr/", "./o.zarr", "~/o.zarr", "x/../o.zarr//", "link", "dangling"])
def test_paths_are_meant_as_they_are(write, path, home):
    WRITES[write]("plain.zarr")
    wanted, there = tree_bytes(home / "plain.zarr"), {entry.name for entry in home.iterdir()}
    (home / "elsewhere").mkdir()
    if path == "link":
        (home / "elsewhere" / "o.zarr").mkdir()
    if path in ("link", "dangling"):
        (home / path).symlink_to(home / "elsewhere" / "o.zarr")
    WRITES[write](path)
    WRITES[write](path)  # which finds that there is nothing to do
    target = home / "elsewhere" if path in ("link", "dangling") else home
    assert tree_bytes(target / "o.zarr") == wanted
    OTHERS[write](path, overwrite=True)
    assert tree_bytes(target / "o.zarr") != wanted
    WRITES[write](path, overwrite=True)
    assert tree_bytes(target / "o.zarr") == wanted
    links = {path} if path in ("link", "dangling") else {"o.zarr"}
    assert {entry.name for entry in home.iterdir()} == there | links | {"elsewhere"}
    assert [entry.name for entry in (home / "elsewhere").iterdir()] == (["o.zarr"] if target != home else [])
    assert all((home / link).is_symlink() for link in links - {"o.zarr"})


def test_the_folder_above_a_link_is_that_of_its_target(home):
    (home / "far" / "deep").mkdir(parents=True)
    (home / "near").symlink_to(home / "far" / "deep")
    WRITES["transform"]("near/../o.zarr")
    assert (home / "far" / "o.zarr" / "zarr.json").exists()
    assert not (home / "o.zarr").exists()


def test_a_comparison_takes_paths_as_they_are_meant(home):
    how = {"methods": ["rff"], "sizes": [10], "seeds": 1, "components": 2}
    for out in ("cmp/", "~/cmp", "./cmp"):
        assert bigkpca.compare("d.zarr", out, **how).missing == 0
    assert not list(home.glob("*-lock"))
    assert not list((home / "cmp").glob("*-lock"))
    with pytest.raises(SpecError, match=r"d\.zarr/cmp and the input .*d\.zarr lie inside each other"):
        bigkpca.compare("d.zarr", "d.zarr/cmp", **how)


def test_rows_behind_a_link_and_two_points_are_those_that_the_system_means(home):
    (home / "far" / "deep").mkdir(parents=True)
    (home / "near").symlink_to(home / "far" / "deep")
    np.save(home / "far" / "x.npy", X + 1)
    np.save(home / "x.npy", X)
    np.testing.assert_array_equal(open_rows("near/../x.npy").block(0, 90), X + 1)


@every_write
@pytest.mark.parametrize("path", [None, 5, b"o.zarr"])
def test_what_is_no_path_is_refused(write, path, home):
    there = {entry.name for entry in home.iterdir()}
    with pytest.raises(TypeError):
        WRITES[write](path)
    assert {entry.name for entry in home.iterdir()} == there


def test_the_home_folder_is_meant_by_its_sign_everywhere(home):
    np.save("y.npy", np.arange(90))
    ingest(["~/a.npy"], "~/d2.zarr", labels="~/y.npy")
    bigkpca.fit("~/d2.zarr", "~/m2.zarr", **FIT)
    bigkpca.transform("~/m2.zarr", "~/d2.zarr", "~/s2.zarr")
    bigkpca.reconstruct("~/m2.zarr", "~/s2.zarr", "~/x2.zarr")
    assert bigkpca.load("~/m2.zarr").components == 3
    assert all((home / name).is_dir() for name in ("d2.zarr", "m2.zarr", "s2.zarr", "x2.zarr"))


@pytest.mark.usefixtures("quiet_signals")
def test_commands_write_out_the_home_folder_wherever_a_path_stands(home):
    def run(*command):
        done = commands.run(*command)
        assert done.exit_code == 0, done.output
        return done.stdout

    (home / "sub").mkdir()
    assert "dataset" in run("ingest", "~/a.npy", "~/sub/d.zarr", "-q") + run("info", "~/sub/d.zarr")
    np.save(home / "own.npy", X[:9])
    run("fit", "~/sub/d.zarr", "~/sub/m.zarr", "--components", "2", "--landmarks", "~/own.npy", "-q")
    run("transform", "~/sub/m.zarr", "~/sub/d.zarr", "~/sub/s.zarr", "-q")
    run("reconstruct", "~/sub/m.zarr", "~/sub/s.zarr", "~/sub/x.zarr", "-q")
    assert "model" in run("info", "~/sub/m.zarr")
    assert sorted(path.name for path in (home / "sub").iterdir()) == ["d.zarr", "m.zarr", "s.zarr", "x.zarr"]
    assert not (home / "~").exists()
