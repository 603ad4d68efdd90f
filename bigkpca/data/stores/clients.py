"""The library for object stores: clients kept in each process, and errors in plain words.

Credentials and addresses of servers come from the environment and stay in the clients. The library's error messages may
contain both, so none of their text is passed on.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bigkpca.data.stores.base import SCHEMES, Address, address
from bigkpca.errors import BigKPCAError, CorruptionError, IncompleteError, SpecError, require

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Client = S3Store | GCSStore | AzureStore


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for a connection, for bytes and for a whole request, and the retries."""

    connect: float = 5.0
    read: float = 15.0
    request: float = 30.0
    retry: float = 45.0  # after the start of a request; the last try may last `request` longer
    retries: int = 6


PATIENCE = Patience()
_GRANTED: dict[str, str] = {}  # for each bucket, something in it that this process was allowed to request
_MATTERS = re.compile(
    "_(ENDPOINT|ENDPOINT_URL|ENDPOINT_URL_S3|ACCESS_KEY_ID|SECRET_ACCESS_KEY|ACCOUNT_NAME|ACCOUNT_KEY)$"
)
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified bucket does not exist")


def _library() -> Any:
    """obstore, imported when it is first needed. Raises SpecError if it is not installed."""
    require("obstore", "cloud", "an object store")
    import obstore.exceptions

    return obstore


@lru_cache
def client(scheme: str, bucket: str, below: str = "") -> Client:
    """The client of a bucket, or of the keys below one. Raises SpecError without the library, and for settings that it
    rejects."""
    BaseError = _library().exceptions.BaseError
    _check_environment(f"{scheme}://{bucket}", SCHEMES[scheme])
    from obstore import store as stores

    kinds: dict[str, Any] = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}
    # These options override those that the library itself reads from the environment.
    plain = os.environ.get(f"{SCHEMES[scheme]}_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on")
    try:
        made: Client = kinds[scheme](
            bucket,
            prefix=below or None,
            client_options={
                "connect_timeout": timedelta(seconds=PATIENCE.connect),
                "read_timeout": timedelta(seconds=PATIENCE.read),
                "timeout": timedelta(seconds=PATIENCE.request),
                "allow_http": plain,
            },
            retry_config={
                "max_retries": PATIENCE.retries,
                "retry_timeout": timedelta(seconds=PATIENCE.retry),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=200),
                    "max_backoff": timedelta(seconds=8),
                    "base": 2,
                },
            },
        )
    except (BaseError, ValueError):
        raise SpecError(
            f"{scheme}://{bucket}: the settings of this object store contradict each other: see the environment "
            f"variables {SCHEMES[scheme]}_..."
        ) from None
    return made


def _check_environment(root: str, prefix: str) -> None:
    """Raise SpecError for variables that are set but empty, and for invalid server addresses: the library panics at
    some, and signs requests with an empty key."""
    given = {
        name: value for name, value in os.environ.items() if name.startswith(f"{prefix}_") and _MATTERS.search(name)
    }
    empty = sorted(name for name, value in given.items() if not value.strip())
    if empty:
        raise SpecError(f"{root}: the environment has {', '.join(empty)} without a value: set or unset it")
    for name, value in sorted(given.items()):
        if "ENDPOINT" not in name:
            continue
        try:
            url = urlsplit(value)
            known = url.scheme in ("http", "https") and url.hostname and url.port != 0 and len(value.split()) == 1
        except ValueError:  # of a port, or of brackets
            known = False
        if not known:
            raise SpecError(f"{root}: {name} in the environment is not a server address such as https://10.0.0.1")


class Conflict(Exception):
    """An object that was to be created exists, or one that was to be replaced has changed."""


@contextmanager
def plain_errors(url: str) -> Iterator[None]:
    """Requests about `url`, with errors in plain words. Raises SpecError if access is denied or the bucket does not
    exist, IncompleteError if the server does not answer, or denies what it granted before, FileNotFoundError for a
    missing object, and Conflict."""
    exceptions = _library().exceptions
    try:
        yield
        with suppress(SpecError):  # Zarr may use names that no URL of bigkpca has
            at = address(url)
            if at.key:
                _GRANTED[at.root] = url
    except BigKPCAError:
        raise
    except FileNotFoundError as error:
        if _NO_BUCKET.search(str(error)):
            raise _explained(error, url) from None
        raise FileNotFoundError(errno.ENOENT, "does not exist", url) from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise Conflict(url) from None
    except (exceptions.BaseError, OSError) as error:  # OSError: of a file that is closed
        raise _explained(error, url) from None


def create(url: str, content: bytes) -> None:
    """Write an object. Raises Conflict if there is one, and the errors of `plain_errors`."""
    to = address(url)
    with plain_errors(url):
        client(to.scheme, to.bucket).put(to.key, content, mode="create", use_multipart=False)


def swap(url: str, before: bytes, content: bytes) -> bool:
    """Replace an object with the content `before`; whether it has the other one then. Raises the errors of
    `plain_errors`."""
    to = address(url)
    holder = client(to.scheme, to.bucket)
    with plain_errors(url):
        found = holder.get(to.key)
        held, version = bytes(found.bytes()), {name: found.meta[name] for name in ("e_tag", "version")}
    if held == before:
        known: Any = {name: value for name, value in version.items() if value is not None}
        # Not where another request replaced it meanwhile. The library repeats requests, and this one may have done it.
        with suppress(Conflict), plain_errors(url):
            holder.put(to.key, content, mode=known, use_multipart=False)
        with plain_errors(url):
            held = bytes(holder.get(to.key).bytes())
    return held == content


def upload(url: str, part: int) -> Any:
    """A file of the library to which an object is written, with at most three times `part` bytes of memory. The object
    exists once the file is closed; if its context is left with an error, it is discarded. Errors are the library's."""
    to = address(url)
    return _library().open_writer(client(to.scheme, to.bucket), to.key, buffer_size=part, max_concurrency=2)


def _explained(error: Exception, url: str) -> BigKPCAError:
    """The meaning of an error of the library, whose text is not shown, since it may name servers and keys."""
    text, at = str(error), address(url)
    variables = f"{SCHEMES[at.scheme]}_..."
    code = _status(error)
    if _is_denied(error):
        if _expired(at):
            return IncompleteError(
                f"{url}: access was granted before and is now denied: renew the credentials (see the environment "
                f"variables {variables}) and run the same command again"
            )
        return SpecError(
            f"{url}: access denied: no credentials are set, the server does not know them, or they lack permission: "
            f"see the environment variables {variables}"
        )
    if code == 416:
        return CorruptionError(f"{url} is shorter than it should be; restore it or make the data again")
    if code == 404:
        return SpecError(f"{url}: there is no bucket {at.root}")
    if "BadScheme" in text:
        return SpecError(f"{url}: the server's address begins with http://: set {SCHEMES[at.scheme]}_ALLOW_HTTP=true")
    if "169.254." in text or "metadata.google" in text:  # where cloud machines request credentials
        return SpecError(f"{url}: no credentials were found: set the environment variables {variables}")
    if type(error).__name__ == "NotSupportedError":
        return SpecError(f"{url}: the server, or a setting in {variables}, does not support a required operation")
    if code is not None and 300 <= code < 500 and code not in (408, 409, 425, 429):
        return SpecError(
            f"{url}: the server refuses the request (HTTP status {code}): check region and address in the environment "
            f"variables {variables}"
        )
    how = "does not answer" if code is None else f"answers with HTTP status {code}"
    return IncompleteError(f"{url}: the server {how}, even after retries: run the same command again")


def _status(error: Exception) -> int | None:
    """The HTTP status of an error of the library."""
    found = re.search(r"status code: (\d{3})", str(error))
    return int(found[1]) if found else None


def _is_denied(error: Exception) -> bool:
    denials = ("PermissionDeniedError", "UnauthenticatedError")
    said = re.search("ExpiredToken|AccessDenied", str(error))  # one of several objects may be denied without a status
    return _status(error) in (401, 403) or type(error).__name__ in denials or said is not None


def _expired(at: Address) -> bool:
    """Whether the server denies this process what it granted before, because of credentials and not permission for one
    object."""
    if at.root not in _GRANTED:
        return False
    try:
        client(at.scheme, at.bucket).head(address(_GRANTED[at.root]).key)
    except FileNotFoundError:
        return False
    except _library().exceptions.BaseError as error:
        return _is_denied(error) or _status(error) == 400  # without a reason if a response has no body
    return False
