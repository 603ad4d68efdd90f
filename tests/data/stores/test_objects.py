"""Object stores against local disks: every operation of a store, on both, with one expectation."""

import io
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigkpca.data.opening import open_rows
from bigkpca.data.retrying import retrying_for
from bigkpca.data.stores import LocalDisk, ObjectStore, clients, expanded, parent, store_of
from bigkpca.data.zarr import array_path
from bigkpca.errors import CorruptionError, IncompleteError, LockedError, SpecError
from bigkpca.ingesting.streaming import ingest
from tests.data.cases import case
from tests.helpers.disks import tree_bytes
from tests.helpers.proxy import proxy
from tests.helpers.s3 import BUCKET, KEY, SECRET, objects


@pytest.fixture(params=["local", pytest.param("objects", marks=pytest.mark.full)])
def root(request, tmp_path):
    """A folder where nothing is, in both kinds of stores."""
    return str(tmp_path / "root") if request.param == "local" else request.getfixturevalue("bucket")


def filled(root, **files):
    """The store of a folder with these files; `__` in a name stands for a slash."""
    store = store_of(root)
    for name, content in files.items():
        path = f"{root}/{name.replace('__', '/')}"
        store.make_folder(parent(path))
        store.write(path, content)
    return store


def test_files_and_folders_are_seen(root):
    store = filled(root, a=b"123", b__c__d=b"12345")
    assert [store.exists(f"{root}/{name}") for name in ("a", "b", "b/c", "b/c/d")] == [True] * 4
    assert [name for name in ("a", "b", "b/c", "b/c/d", "n") if store.is_folder(f"{root}/{name}")] == ["b", "b/c"]
    assert not store.exists(f"{root}/n")
    assert not store.exists(f"{root}/b/c/dd")
    assert sorted(store.names(root)) == ["a", "b"]
    with pytest.raises(FileNotFoundError, match="n"):
        store.names(f"{root}/n")


def test_sizes_and_stamps_of_files(root):
    store = filled(root, a=b"123", b__c__d=b"12345")
    found = store.files(root)
    assert {name: file.bytes for name, file in found.items()} == {"a": 3, "b/c/d": 5}
    assert store.file(f"{root}/a") == found["a"]
    assert store.files(f"{root}/b") == {"c/d": found["b/c/d"]}
    assert store.files(f"{root}/n") == {}
    store.write(f"{root}/a", b"1234")
    assert store.files(root)["a"] != found["a"]
    for missing in (store.file, store.open):
        with pytest.raises(FileNotFoundError, match="n"):
            missing(f"{root}/n")


def test_an_output_in_a_bucket_is_that_of_a_local_disk(tmp_path, bucket):
    """Through a lease, a move to its place, and another that replaces it."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", X + 1)
    ingest([tmp_path / "x.npy"], tmp_path / "x.zarr", block_rows=16)
    ingest([tmp_path / "y.npy"], f"{bucket}/x.zarr", block_rows=16)
    with pytest.raises(LockedError, match="another run is writing"), store_of(bucket).writer(f"{bucket}/x.zarr"):
        ingest([tmp_path / "x.npy"], f"{bucket}/x.zarr", block_rows=16, overwrite=True)
    ingest([tmp_path / "x.npy"], f"{bucket}/x.zarr", block_rows=16, overwrite=True)
    for out in (tmp_path / "x.zarr", f"{bucket}/x.zarr"):
        ingest([tmp_path / "y.npy"], out, append=True)
    assert objects(bucket) == {f"x.zarr/{name}": held for name, held in tree_bytes(tmp_path / "x.zarr").items()}
    group = zarr.open_group(store_of(bucket).zarr(f"{bucket}/x.zarr"), mode="r")
    assert [name for name, _ in group.arrays()] == ["x"]
    rows = open_rows(f"{bucket}/x.zarr")
    assert rows.shape == (80, 3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows.part(10, 40))).block(10, 40), X[10:])
    store_of(bucket).remove_file(f"{bucket}/x.zarr/x/c/1/0")
    with retrying_for(0.0), pytest.raises(CorruptionError, match="c/1/0 is missing"):
        rows.block(0, 40)


def test_files_are_read_at_any_place(root):
    for size in (0, 5, 3_000_000):
        content = np.random.default_rng(0).bytes(size)
        store = filled(root, a=content)
        with store.open(f"{root}/a") as file:
            assert file.read() == content
            file.seek(size // 2)
            assert file.read(100) == content[size // 2 :][:100]
            assert file.seek(0, io.SEEK_END) == size
            assert file.read() == b""
            file.seek(0)
            assert file.read(3) == content[:3]


def test_folders_are_moved_and_removed(root):
    files = {"zarr.json": b"{}", "x/zarr.json": b"[]", "x/manifest.json": b"0", "x/c/0/0": b"1"}
    store = filled(f"{root}/a.bigkpca-new", **{name.replace("/", "__"): content for name, content in files.items()})
    filled(root, ab__c=b"beside")
    store.move(f"{root}/a.bigkpca-new", f"{root}/a")
    assert sorted(store.files(f"{root}/a")) == sorted(files)
    assert {name.partition("/")[0] for name in store.files(root)} == {"a", "ab"}
    for name, content in files.items():
        with store.open(f"{root}/a/{name}") as file:
            assert file.read() == content
    assert not store.is_moving(f"{root}/a")
    store.recover(f"{root}/a")
    store.remove_folder(f"{root}/a/zarr.json")  # a file, which stays
    assert store.exists(f"{root}/a/zarr.json")
    for _ in range(2):
        store.remove_file(f"{root}/a/zarr.json")
        assert not store.exists(f"{root}/a/zarr.json")
    for _ in range(2):
        store.remove_folder(f"{root}/a")
        assert not store.exists(f"{root}/a")
    store.sync(root)
    assert list(store.files(root)) == ["ab/c"]


@pytest.mark.full
def test_arrays_and_stores_travel_without_clients_and_credentials(bucket):
    array = zarr.create_array(store_of(bucket).zarr(f"{bucket}/x"), shape=(3, 2), dtype="f4")
    array[:] = 7
    for thing in (store_of(bucket), array, open_rows(f"{bucket}/x")):
        sent = pickle.dumps(thing)
        assert KEY.encode() not in sent + repr(thing).encode()
        assert SECRET.encode() not in sent + repr(thing).encode()
    back = pickle.loads(pickle.dumps(array))
    assert back.store.store is array.store.store
    assert back == array
    assert array_path(back) == f"{bucket}/x"
    np.testing.assert_array_equal(back[:], 7)
    assert pickle.loads(pickle.dumps(store_of(bucket))) == store_of(bucket) == ObjectStore("s3", BUCKET)


@pytest.mark.full
def test_a_fingerprint_lists_and_reads_no_chunk(s3_server, use_s3, bucket):
    array = zarr.create_array(store_of(bucket).zarr(f"{bucket}/x"), shape=(6, 2), dtype="f4", chunks=(2, 2))
    array[:] = np.arange(12).reshape(6, 2)
    first = open_rows(f"{bucket}/x").fingerprint()
    array[2:4] = np.arange(4, 8).reshape(2, 2)  # what was there
    assert open_rows(f"{bucket}/x").fingerprint() == first
    array[2:4] = 0
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        assert open_rows(f"{bucket}/x").fingerprint() != first
        asked = between.requests
    assert asked
    assert [path for _, path in asked if "/x/c/" in path] == []
    assert len([path for _, path in asked if "list-type" in path]) <= 3


@pytest.mark.full
def test_chunks_that_are_gone_are_missed(bucket):
    options = {"shape": (6, 2), "dtype": "f4", "chunks": (2, 2), "fill_value": np.nan}
    array = zarr.create_array(store_of(bucket).zarr(f"{bucket}/x"), **options)
    array[:] = 1
    store_of(bucket).remove_file(f"{bucket}/x/c/1/0")
    with pytest.raises(CorruptionError, match="1 stored chunks are missing, the first holds row 2"):
        open_rows(f"{bucket}/x")
    with pytest.raises(SpecError, match=r"n\.zarr does not exist"):
        open_rows(f"{bucket}/n.zarr")
    store_of(bucket).write(f"{bucket}/x.csv", b"1")
    with pytest.raises(SpecError, match=r"x\.csv is a file; make a dataset"):
        open_rows(f"{bucket}/x.csv")
    store_of(bucket).write(f"{bucket}/x.npy", b"1")
    with pytest.raises(SpecError, match=r"x\.npy: \.npy files are read from local disks only: copy it"):
        open_rows(f"{bucket}/x.npy")


def test_urls_that_lead_nowhere_are_refused():
    for url, message in (
        ("s3://me:hidden@bucket/x", "may hold secrets"),
        ("s3://bucket/x?X-Amz-Signature=hidden", "may hold secrets"),
        ("https://bucket/x", "only local paths and s3://, gs:// and az://"),
        ("ftp://bucket/x", "ftp://bucket/x: only local paths"),
        ("file:///x", "leave file:// out"),
        ("s3://", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket/a//x", "an empty name"),
        ("s3://bucket/../x", "an empty name"),
    ):
        for refused in (store_of, open_rows):
            with case(url), pytest.raises(SpecError, match=message) as raised:
                refused(url)
            assert "hidden" not in str(raised.value)


def test_names_that_look_like_those_beside_an_output_are_refused(tmp_path):
    for root in (str(tmp_path), "s3://bucket"):
        for name in ("a.bigkpca-b", "out.zarr.bigkpca-new", "a.bigkpca-b.zarr/"):
            with case(name), pytest.raises(SpecError, match=r"\.bigkpca- in a name .* choose another name"):
                store_of(root).output_path(f"{root}/{name}", ())
        store_of(root).output_path(f"{root}/a.bigkpca/b", ())


def test_the_parts_of_a_url():
    assert parent("s3://bucket/a/b/") == "s3://bucket/a"
    assert parent("s3://bucket/a") == parent("s3://bucket") == "s3://bucket"
    assert expanded("s3://bucket/~") == expanded("s3://bucket/~//") == "s3://bucket/~"
    with pytest.raises(SpecError, match="give s3:// as text"):
        expanded(Path("s3://bucket/x"))
    for scheme in ("s3", "gs", "az"):
        store = store_of(f"{scheme}://bucket/x")
        assert store == ObjectStore(scheme, "bucket")
        assert (
            store.absolute(f"{scheme}://bucket/x/") == store.resolved(f"{scheme}://bucket/x") == f"{scheme}://bucket/x"
        )


def test_outputs_lie_apart_from_inputs():
    store = store_of("s3://bucket/out")
    assert store.output_path("s3://bucket/out/", ("s3://bucket/in", "s3://other/out", "out", "s3://bucket/ou")) == (
        "s3://bucket/out"
    )
    with pytest.raises(SpecError, match="is an input, and would be replaced"):
        store.output_path("s3://bucket/out", ("s3://bucket/out/",))
    for other in ("s3://bucket/out/x", "s3://bucket"):
        with pytest.raises(SpecError, match="lie inside each other"):
            store.output_path("s3://bucket/out", (other,))
    with pytest.raises(SpecError, match="a whole bucket"):
        store.output_path("s3://bucket/", ())
    assert LocalDisk().output_path("out", ("s3://bucket/in",)) == "out"


OPERATIONS = [
    lambda store, url: store.exists(url),
    lambda store, url: store.is_folder(url),
    lambda store, url: store.names(url),
    lambda store, url: store.files(url),
    lambda store, url: store.write(url, b""),
    lambda store, url: store.move(url, f"{url}-moved"),
    lambda store, url: store.writer(url).__enter__(),
    lambda store, url: zarr.create_group(store.zarr(url)),
    lambda store, url: open_rows(url),
]


def refused(url, kind, message, every=1):
    for operation in OPERATIONS[::every]:
        with pytest.raises(kind, match=message) as raised:
            operation(store_of(url), url)
        assert raised.value.__cause__ is None
        assert raised.value.__suppress_context__
        assert not any(secret in str(raised.value) for secret in (KEY, SECRET, "127.0.0.1", "<Error>"))


@pytest.mark.full
def test_a_wrong_key_and_a_wrong_bucket_are_told(s3_server, bucket, use_s3):
    refused("s3://no-such-bucket/x", SpecError, "there is no bucket s3://no-such-bucket")
    use_s3(s3_server.port, key="another")
    refused(bucket, SpecError, r"access denied: .* AWS_\.\.\.")
    use_s3(s3_server.port, secret="another")
    refused(bucket, SpecError, "access denied")


@pytest.mark.full
def test_credentials_that_expire_in_the_middle_of_a_run_are_to_be_renewed(bucket, monkeypatch):
    array = zarr.create_array(store_of(bucket).zarr(f"{bucket}/x"), shape=(3, 2), dtype="f4")
    array[:] = 7
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired")
    clients.client.cache_clear()
    refused(bucket, IncompleteError, r"access denied, .* renew the credentials .* run the same command again", every=2)
    with pytest.raises(SpecError, match="access denied"):  # where nothing was granted
        store_of("s3://other").write("s3://other/x", b"")


def denial(url, text):
    """What is told of an error with this text."""
    with pytest.raises((SpecError, IncompleteError)) as raised, clients.told(url):
        raise clients._library().exceptions.GenericError(text)
    return type(raised.value).__name__


@pytest.mark.full
def test_rights_that_lack_for_one_object_are_not_credentials_that_expired(bucket):
    for text in ("status code: 403", "status code: 401", "status code: 400 <Code>ExpiredToken</Code>", "AccessDenied"):
        assert denial(f"{bucket}/x", text) == "SpecError"
    filled(bucket, a=b"1")
    assert denial(f"{bucket}/x", "status code: 403") == "SpecError"  # as what was granted before still is
    store_of(bucket).remove_file(f"{bucket}/a")
    assert denial(f"{bucket}/x", "status code: 403") == "SpecError"


def test_settings_that_cannot_be_right_are_told_before_a_request(use_s3, monkeypatch):
    use_s3(1)  # where nobody listens
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    clients.client.cache_clear()
    refused(f"s3://{BUCKET}", SpecError, "set AWS_ALLOW_HTTP=true")
    for names in (["AWS_ENDPOINT_URL"], ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]):
        with monkeypatch.context() as patch:
            for name in names:
                patch.setenv(name, "")
            clients.client.cache_clear()
            message = f"s3://{BUCKET}: the environment has {', '.join(names)} without a value: give one, or unset it"
            for operation in OPERATIONS:
                with pytest.raises(SpecError, match=message):
                    operation(store_of(f"s3://{BUCKET}"), f"s3://{BUCKET}/x")
    for value in ("hidden", "localhost:9000", "http://", "http://[::", "http://a b", "http://a:hidden"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", value)
        clients.client.cache_clear()
        message = "AWS_ENDPOINT_URL in the environment is not the address of a server"
        with case(value), pytest.raises(SpecError, match=message) as raised:
            store_of(f"s3://{BUCKET}").exists(f"s3://{BUCKET}/x")
        assert "hidden" not in str(raised.value)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["stall", "reset", "cut", "down"])
def test_a_server_that_does_not_answer_is_told(s3_server, bucket, use_s3, monkeypatch, mode):
    patience = clients.Patience(connect=0.3, read=0.3, request=0.5, retry=0.4, retries=1)
    monkeypatch.setattr(clients, "PATIENCE", patience)
    zarr.create_array(store_of(bucket).zarr(f"{bucket}/x"), shape=(3, 2), dtype="f4")[:] = 7
    sent = pickle.dumps(open_rows(f"{bucket}/x"))
    with proxy(s3_server.port) as between, retrying_for(0.3):
        use_s3(1 if mode == "down" else between.port)
        rows = pickle.loads(sent)
        between.mode = "pass" if mode == "down" else mode
        refused(bucket, IncompleteError, "does not answer, also after retries", every=3)
        with pytest.raises(IncompleteError, match="does not answer"):
            rows.block(0, 2)


@pytest.mark.full
def test_a_short_outage_is_passed_over(s3_server, bucket, use_s3):
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        store = filled(bucket, a=b"1")
        for mode in ("reset", "cut"):
            before = len(between.requests)
            between.mode = mode
            with ThreadPoolExecutor(1) as pool:
                listed = pool.submit(store.files, bucket)
                while len(between.requests) == before and not listed.done():  # until one is lost
                    time.sleep(0.01)
                between.mode = "pass"
                assert listed.result(200)["a"].bytes == 1


def test_the_library_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    clients.client.cache_clear()
    with pytest.raises(SpecError, match=r"pip install 'bigkpca\[cloud\]'"):
        open_rows("s3://bucket/x")
