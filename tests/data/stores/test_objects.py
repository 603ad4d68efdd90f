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
from bigkpca.data.stores import LocalDisk, ObjectStore, clients, expanded, parent, store_of
from bigkpca.data.zarr import array_path
from bigkpca.data.zarr_stores import zarr_store
from bigkpca.errors import CorruptionError, FillValuesWarning, IncompleteError, SpecError
from bigkpca.ingesting import ingest
from tests.data.cases import case, refused
from tests.helpers.cuts import Steps
from tests.helpers.disks import tree_bytes
from tests.helpers.proxy import proxy
from tests.helpers.s3 import BUCKET, KEY, SECRET, in_bucket
from tests.helpers.stores import as_npy


def filled(root, **files):
    """The store of a folder with these files; `__` in a name stands for a slash."""
    store = store_of(root)
    for name, content in files.items():
        path = f"{root}/{name.replace('__', '/')}"
        store.make_folder(parent(path))
        store.write(path, content)
    return store


def instead(client, **others):
    """The client, with others of its methods."""
    return type("Client", (), {"__getattr__": lambda _, name: others.get(name) or getattr(client, name)})()


def test_files_and_folders_are_seen_with_sizes_and_stamps(root):
    store = filled(root, a=b"123", b__c__d=b"12345")
    there = ("a", "b", "b/c", "b/c/d")
    assert [name for name in (*there, "n", "b/c/dd") if store.exists(f"{root}/{name}")] == [*there]
    assert [name for name in (*there, "n") if store.is_folder(f"{root}/{name}")] == ["b", "b/c"]
    assert sorted(store.names(root)) == ["a", "b"]
    found = store.files(root)
    assert {name: file.bytes for name, file in found.items()} == {"a": 3, "b/c/d": 5}
    assert store.file(f"{root}/a") == found["a"]
    assert store.files(f"{root}/b") == {"c/d": found["b/c/d"]}
    assert store.files(f"{root}/n") == {}
    store.write(f"{root}/a", b"1234")
    assert store.files(root)["a"] != found["a"]
    for missing in (store.names, store.file, store.open):
        with pytest.raises(FileNotFoundError, match="n"):
            missing(f"{root}/n")


def test_an_output_in_a_bucket_is_that_of_a_local_disk(tmp_path, bucket):
    X, out = np.random.default_rng(0).normal(size=(40, 3)), f"{bucket}/x.zarr"
    x, y = as_npy(tmp_path, X, "x.npy"), as_npy(tmp_path, X + 1, "y.npy")
    ingest([x], tmp_path / "x.zarr", block_rows=16)
    ingest([y], out, block_rows=16)
    ingest([x], out, block_rows=16, overwrite=True)
    for each in (tmp_path / "x.zarr", out):
        ingest([y], each, append=True)
    assert in_bucket(bucket) == {f"x.zarr/{name}": held for name, held in tree_bytes(tmp_path / "x.zarr").items()}
    assert [name for name, _ in zarr.open_group(zarr_store(out), mode="r").arrays()] == ["x"]
    rows = open_rows(out)
    assert rows.shape == (80, 3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows.part(10, 40))).block(10, 40), X[10:])
    store_of(bucket).remove_file(f"{out}/x/c/1/0")
    with pytest.raises(CorruptionError, match=r"x\.zarr: .*x\.zarr/x/c/1/0 is missing"):
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


def test_files_and_folders_are_removed(root):
    store = filled(root, a__x__c__0=b"1", ab__c=b"beside", **{"a__zarr.json": b"{}"})
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
def test_a_file_is_claimed_by_the_first_and_swapped_only_if_it_is_what_it_was(bucket, monkeypatch):
    store = store_of(bucket)
    assert [store.claim(f"{bucket}/claim", content) for content in (b"1", b"2", b"1")] == [b"1", b"1", b"1"]
    store, url = filled(bucket, a=b"1"), f"{bucket}/a"
    assert [store.swap(url, *pair) for pair in ((b"0", b"2"), (b"1", b"2"), (b"1", b"2"))] == [False, True, True]
    assert not store.swap(f"{bucket}/nothing", b"1", b"2")
    real = clients.client("s3", BUCKET)

    def put(*given, **how):
        late.undo()
        store.write(url, b"theirs")  # just before
        return real.put(*given, **how)

    with monkeypatch.context() as late:
        late.setattr(ObjectStore, "_client", instead(real, put=put))
        assert not store.swap(url, b"2", b"3")
    assert in_bucket(bucket)["a"] == b"theirs"


def stored_array(bucket, values, **options):
    """An array in a bucket, and its URL."""
    url, values = f"{bucket}/x", np.asarray(values, "f4")
    array = zarr.create_array(zarr_store(url), shape=values.shape, dtype=values.dtype, **options)
    array[:] = values
    return array, url


@pytest.mark.full
def test_arrays_and_stores_travel_without_clients_and_credentials(bucket):
    array, url = stored_array(bucket, np.full((3, 2), 7))
    for thing in (store_of(bucket), array, open_rows(url)):
        sent = pickle.dumps(thing) + repr(thing).encode()
        assert not any(secret.encode() in sent for secret in (KEY, SECRET))
    back = pickle.loads(pickle.dumps(array))
    assert back.store.store is array.store.store
    assert (back, array_path(back)) == (array, url)
    np.testing.assert_array_equal(back[:], 7)
    assert pickle.loads(pickle.dumps(store_of(bucket))) == store_of(bucket) == ObjectStore("s3", BUCKET)


@pytest.mark.full
def test_a_fingerprint_lists_and_reads_no_chunk(s3_server, use_s3, bucket):
    array, url = stored_array(bucket, np.arange(12).reshape(6, 2), chunks=(2, 2))
    first = open_rows(url).fingerprint()
    array[2:4] = np.arange(4, 8).reshape(2, 2)  # what was there
    assert open_rows(url).fingerprint() == first
    array[2:4] = 9
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        assert open_rows(url).pin(6).fingerprint() != first
        asked = [path for _, path in between.requests]
    assert asked
    assert not [path for path in asked if "/x/c/" in path]
    assert len([path for path in asked if "list-type" in path]) <= 3


@pytest.mark.full
def test_chunks_that_are_gone_are_missed_and_what_is_no_rows_is_refused(bucket):
    _, url = stored_array(bucket, np.ones((6, 2)), chunks=(2, 2), fill_value=np.nan)
    rows = open_rows(url)
    others = {"o.zarr__x__zarr.json": b"{}", "o.zarr.partial__claim.json": b"{}", "x.csv": b"1", "x.npy": b"1"}
    filled(bucket, **others).remove_file(f"{url}/c/1/0")
    with pytest.raises(CorruptionError, match="x/c/1/0 is missing"):
        rows.block(0, 6)
    with pytest.warns(FillValuesWarning, match="x: 1 of its chunks are not stored, so their values are the fill value"):
        assert np.isnan(open_rows(url).block(2, 4)).all()
    refused(
        lambda name: open_rows(f"{bucket}/{name}"),
        ("n.zarr", SpecError, r"n\.zarr does not exist"),
        ("x.csv", SpecError, r"x\.csv is a file; make a dataset"),
        ("x.npy", SpecError, r"x\.npy: \.npy files are read only from local disks: copy it"),
        ("o.zarr", IncompleteError, r"o\.zarr is not finished: run the command that makes it again"),
    )


def test_urls_that_lead_nowhere_are_refused():
    for url, message in (
        ("s3://me:hidden@bucket/x", "may contain secrets"),
        ("s3://bucket/x?X-Amz-Signature=hidden", "may contain secrets"),
        ("https://bucket/x", "only local paths and s3://, gs:// and az://"),
        ("ftp://bucket/x", "ftp://bucket/x: only local paths"),
        ("file:///x", "omit file://"),
        ("s3://", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket/a//x", "an empty name"),
        ("s3://bucket/../x", "an empty name"),
    ):
        for use in (store_of, open_rows):
            with case(url), pytest.raises(SpecError, match=message) as raised:
                use(url)
            assert "hidden" not in str(raised.value)


def test_the_parts_of_a_url():
    assert parent("s3://bucket/a/b/") == "s3://bucket/a"
    assert parent("s3://bucket/a") == parent("s3://bucket") == "s3://bucket"
    assert expanded("s3://bucket/~") == expanded("s3://bucket/~//") == "s3://bucket/~"
    with pytest.raises(SpecError, match="pass s3:// URLs as strings"):
        expanded(Path("s3://bucket/x"))
    for scheme in ("s3", "gs", "az"):
        url = f"{scheme}://bucket/x"
        assert store_of(url) == ObjectStore(scheme, "bucket")
        assert store_of(url).absolute(f"{url}/") == store_of(url).resolved(f"{url}/") == url


def test_outputs_lie_apart_from_inputs(tmp_path):
    store, out = store_of("s3://bucket/out"), "s3://bucket/out"
    assert store.output_path(f"{out}/", ("s3://bucket/in", "s3://other/out", "out", "s3://bucket/ou")) == out
    refused(
        store.output_path,
        (out, (f"{out}/",), SpecError, "is an input and would be replaced"),
        (out, (f"{out}/x",), SpecError, "lie inside each other"),
        (out, ("s3://bucket",), SpecError, "lie inside each other"),
        ("s3://bucket/", (), SpecError, "a whole bucket"),
    )
    assert LocalDisk().output_path("out", (out,)) == "out"
    for root in (str(tmp_path), "s3://bucket"):
        for name in ("out.zarr.partial", "out.zarr.bigkpca-lock/"):
            message = r"\.partial and \.bigkpca-lock end the names of what"
            refused(store_of(root).output_path, (f"{root}/{name}", (), SpecError, message))
        store_of(root).output_path(f"{root}/a.partial/b", ())


OPERATIONS = [
    lambda store, url: store.exists(url),
    lambda store, url: store.is_folder(url),
    lambda store, url: store.names(url),
    lambda store, url: store.files(url),
    lambda store, url: store.write(url, b""),
    lambda store, url: store.claim(url, b""),
    lambda store, url: store.swap(url, b"", b"1"),
    lambda store, url: zarr.create_group(zarr_store(url)),
    lambda store, url: open_rows(url),
]


def refused_everywhere(url, kind, message, every=1):
    for operation in OPERATIONS[::every]:
        with pytest.raises(kind, match=message) as raised:
            operation(store_of(url), url)
        assert raised.value.__cause__ is None
        assert raised.value.__suppress_context__ or raised.value.__context__ is None
        assert not any(secret in str(raised.value) for secret in (KEY, SECRET, "127.0.0.1", "<Error>", "hidden"))


@pytest.mark.full
def test_a_wrong_key_and_a_wrong_bucket_are_told(s3_server, bucket, use_s3):
    refused_everywhere("s3://no-such-bucket/x", SpecError, "there is no bucket s3://no-such-bucket")
    use_s3(s3_server.port, key="another")
    refused_everywhere(bucket, SpecError, r"access denied: .* AWS_\.\.\.")
    use_s3(s3_server.port, secret="another")
    refused_everywhere(bucket, SpecError, "access denied")


@pytest.mark.full
def test_errors_of_the_library_are_told_in_plain_words(bucket):
    exceptions = clients._library().exceptions

    def fail(error):
        with clients.plain_errors(f"{bucket}/x"):
            raise error

    refused(
        fail,
        (exceptions.GenericError("status code: 416"), CorruptionError, "x is shorter than it should be; restore it"),
        (exceptions.GenericError("status code: 403"), SpecError, "access denied"),
        (exceptions.GenericError("status code: 401"), SpecError, "access denied"),
        (exceptions.GenericError("AccessDenied"), SpecError, "access denied"),
        (exceptions.GenericError("400 <Code>ExpiredToken"), IncompleteError, r"have expired: .* AWS_\.\.\."),
        (exceptions.GenericError("GET http://169.254.169.254"), SpecError, r"no credentials were found: .* AWS_\.\.\."),
        (exceptions.NotSupportedError("x"), SpecError, "does not support a required operation"),
        (exceptions.GenericError("status code: 301"), SpecError, r"refuses the request \(HTTP status 301\): check"),
        (exceptions.GenericError("status code: 503"), IncompleteError, "answers with HTTP status 503, even after retr"),
        (OSError("closed"), IncompleteError, "does not answer, even after retries: run the same command again"),
    )


@pytest.mark.full
def test_metadata_are_removed_first_and_what_is_removed_meanwhile_is_no_error(bucket, monkeypatch):
    store = filled(bucket, a__x=b"1", **{"a__zarr.json": b"{}"})
    with Steps(monkeypatch).cut(1):
        store.remove_folder(f"{bucket}/a")
    assert list(in_bucket(bucket)) == ["a/x"]
    real = clients.client("s3", BUCKET)

    def delete(keys):  # of a server that stops at a key that another run has just removed
        real.delete(keys)
        if isinstance(keys, list):
            raise FileNotFoundError(keys[0])

    monkeypatch.setattr(ObjectStore, "_client", instead(real, delete=delete))
    store.remove_folder(f"{bucket}/a")
    assert in_bucket(bucket) == {}


def test_settings_that_cannot_be_right_are_told_before_a_request(use_s3, monkeypatch):
    use_s3(1)  # where nobody listens
    with pytest.raises(FileNotFoundError, match="s3://rows is a bucket"):
        store_of("s3://rows").file("s3://rows")
    for settings, message in (
        ({"AWS_ALLOW_HTTP": "false"}, "set AWS_ALLOW_HTTP=true"),
        *(
            ({"AWS_ENDPOINT_URL": value}, "AWS_ENDPOINT_URL in the environment is not a server address")
            for value in ("", "hidden", "localhost:9000", "http://", "http://[::", "http://a b", "http://a:hidden")
        ),
    ):
        with monkeypatch.context() as patch, case(settings):
            for name, value in settings.items():
                patch.setenv(name, value)
            clients.client.cache_clear()
            refused_everywhere(f"s3://{BUCKET}/x", SpecError, message)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["stall", "reset", "cut", "down"])
def test_a_server_that_does_not_answer_is_told(s3_server, bucket, use_s3, monkeypatch, mode):
    patience = clients.Patience(connect=0.3, read=0.3, request=0.5, retry=0.4, retries=1)
    monkeypatch.setattr(clients, "PATIENCE", patience)
    _, url = stored_array(bucket, np.ones((3, 2)))
    sent = pickle.dumps(open_rows(url))
    with proxy(s3_server.port) as between:
        use_s3(1 if mode == "down" else between.port)
        rows = pickle.loads(sent)
        between.mode = "pass" if mode == "down" else mode
        refused_everywhere(bucket, IncompleteError, "does not answer, even after retries", every=3)
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
