"""The library for object stores: clients kept in each process, and errors in plain words.

Credentials and addresses of servers come from the environment and stay in the clients. The library's error messages may
contain both, so none of their text is passed on.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bigkpca.data.stores.base import SCHEMES, address
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
    retries: int = 7  # after 0.1 s, and then up to twice as long each time


PATIENCE = Patience()
_SERVER = re.compile(r"https?://(\[[0-9a-fA-F:]+\]|[^\s/:\[\]]+)(:[1-9][0-9]*)?(/\S*)?")
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified bucket does not exist")


def _library() -> Any:
    """obstore, imported when it is first needed. Raises SpecError if it is not installed."""
    require("obstore", "cloud", "an object store")
    import obstore.exceptions

    return obstore


@lru_cache
def client(scheme: str, bucket: str, below: str = "") -> Client:
    """The client of a bucket, or of the keys below one. Raises SpecError for settings that the library rejects."""
    BaseError = _library().exceptions.BaseError
    for name, value in sorted(os.environ.items()):  # the library panics at some
        if name.startswith(f"{SCHEMES[scheme]}_ENDPOINT") and not _SERVER.fullmatch(value):
            raise SpecError(
                f"{scheme}://{bucket}: {name} in the environment is not a server address such as https://10.0.0.1"
            )
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
            retry_config={"max_retries": PATIENCE.retries, "retry_timeout": timedelta(seconds=PATIENCE.retry)},
        )
    except (BaseError, ValueError):
        raise SpecError(
            f"{scheme}://{bucket}: the settings of this object store contradict each other: see the environment "
            f"variables {SCHEMES[scheme]}_..."
        ) from None
    return made


class Conflict(Exception):
    """An object that was to be created exists, or one that was to be replaced has changed."""


@contextmanager
def plain_errors(url: str) -> Iterator[None]:
    """Requests about `url`, with errors in plain words: SpecError, IncompleteError for what may pass,
    FileNotFoundError, and Conflict."""
    exceptions = _library().exceptions
    try:
        yield
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


def upload(url: str, part: int) -> Any:
    """A file of the library to which an object is written, with at most three times `part` bytes of memory. The object
    exists once it is closed; on an error in its context it is discarded."""
    to = address(url)
    return _library().open_writer(client(to.scheme, to.bucket), to.key, buffer_size=part, max_concurrency=2)


def _explained(error: Exception, url: str) -> BigKPCAError:
    """The meaning of an error of the library, whose text is not shown, since it may name servers and keys."""
    text, at, kind = str(error), address(url), type(error).__name__
    variables, found = f"{SCHEMES[at.scheme]}_...", re.search(r"status code: (\d{3})", text)
    code = int(found[1]) if found else None
    if "ExpiredToken" in text:
        return IncompleteError(
            f"{url}: the credentials have expired: renew them (see the environment variables {variables}) and run the "
            "same command again"
        )
    # One of several objects may be denied without a status.
    if code in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError") or "AccessDenied" in text:
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
    if kind == "NotSupportedError":
        return SpecError(f"{url}: the server, or a setting in {variables}, does not support a required operation")
    if code is not None and 300 <= code < 500 and code not in (408, 409, 425, 429):
        return SpecError(
            f"{url}: the server refuses the request (HTTP status {code}): check region and address in the environment "
            f"variables {variables}"
        )
    how = "does not answer" if code is None else f"answers with HTTP status {code}"
    return IncompleteError(f"{url}: the server {how}, even after retries: run the same command again")
