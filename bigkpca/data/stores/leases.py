"""One writer per output in an object store: a lease, which its holder renews and which expires otherwise.

The lease is the object `<output>.bigkpca-lock`. Every change to it is a conditional write, so of two runs only one
wins. Its age is measured only with the server's clock: from its time to that of an object just written. Before every
change below the output, its holder checks its own clock, and asks the server if the lease may have expired. So a run
that was suspended sends at most the requests already under way.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Lock, Thread
from typing import Any

from bigkpca.data.stores import clients
from bigkpca.data.stores.base import OURS, address
from bigkpca.data.stores.clients import Conflict, plain_errors
from bigkpca.errors import BigKPCAError, IncompleteError, LockedError, SpecError

SECONDS = 60.0  # after which a lease that nobody renewed may be taken over
_SLACK = 2.0  # servers report times in whole seconds
_LOCK = ".bigkpca-lock"  # behind the name of an output
HOLDER_DIGITS = 12
_HELD: dict[str, Lease] = {}  # by this process
_TESTED: set[str] = set()  # buckets whose server is known to honour conditions
Version = tuple[Any, Any]


@contextmanager
def held(url: str) -> Iterator[None]:
    """Lock the output at `url` against other runs. Raises LockedError if one has it, SpecError if the server cannot
    distinguish two writers."""
    _check_conditional(url)
    lease = Lease.acquired(url)
    _HELD[url] = lease
    thread = Thread(target=lease.keep, name=f"lease of {url}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        lease.ended.set()
        thread.join()
        del _HELD[url]
        lease.release()


def check(url: str) -> None:
    """Raise LockedError if this process held the output that `url` belongs to, but lost it."""
    for lease in _leases_of(url):
        lease.renew()


def look(url: str) -> None:
    """Like `check`, but without a request while the lease is fresh."""
    for lease in _leases_of(url):
        lease.look()


def holder(url: str) -> str:
    """Digits of the lease with which this process holds the output that `url` belongs to."""
    return _leases_of(url)[0].token[:HOLDER_DIGITS]


def _leases_of(url: str) -> list[Lease]:
    """The leases with which this process holds the output that `url` belongs to: one, or none."""
    return [
        lease
        for held_url, lease in tuple(_HELD.items())
        if url == held_url or url.startswith((f"{held_url}/", held_url + OURS))
    ]


@dataclass
class Lease:
    """A lease that this process holds, or held."""

    url: str
    token: str
    seconds: float
    version: Version = (None, None)
    renewals: int = 0  # so that no two contents, and so no two tags, are equal
    renewed: float = 0.0  # when, by `_now`
    lost: bool = False
    ended: Event = field(default_factory=Event)
    _one: Lock = field(default_factory=Lock)

    @classmethod
    def acquired(cls, url: str) -> Lease:
        """Take the lease. Raises LockedError if another run holds it."""
        lease = cls(url, secrets.token_hex(16), SECONDS)
        while not lease._write("create"):
            there = _read(url)
            if there is None:
                continue  # its holder ended between the two requests
            content, version, written = there
            probe = f"{url}{_LOCK}-clock-{secrets.token_hex(8)}"
            to = address(probe)
            client = clients.client(to.scheme, to.bucket)
            with _removed(probe), plain_errors(probe):
                client.put(to.key, b"")
                now = client.head(to.key)["last_modified"]  # by the server's clock, as `written`
            left = content.get("seconds", SECONDS) + _SLACK - (now - written).total_seconds()
            if left > 0:
                raise LockedError(
                    f"another run is writing {url}: wait until it ends (its lock is {url}{_LOCK}, and expires in "
                    f"{left:.0f} seconds unless that run renews it)"
                )
            if not lease._write(version):
                raise LockedError(f"another run has just begun to write {url}: wait until it ends")
            break
        return lease

    def renew(self) -> None:
        """Renew now. Raises LockedError if another run took the lease, or may have."""
        with self._one:
            if not self.lost and self._write(self.version):
                return
            self.lost = True
        raise LockedError(
            f"this run could not renew its lock of {self.url} within {self.seconds:.0f} seconds, and another run may "
            "have taken it over: nothing was published; run the same command again"
        )

    def look(self) -> None:
        """Renew if the lease was lost, or may have been."""
        if self.lost or _now() - self.renewed > self.seconds:
            self.renew()

    def keep(self) -> None:
        """Renew until the end, in a thread."""
        while not self.ended.wait(self.seconds / 3):
            try:
                self.renew()
            except LockedError:
                return
            except (IncompleteError, SpecError):
                if _now() - self.renewed > self.seconds:
                    self.lost = True
                    return

    def release(self) -> None:
        """Remove the lock, if this process still holds it; if the server does not answer, it expires."""
        with suppress(LockedError, IncompleteError, SpecError, FileNotFoundError):
            self.renew()  # so that nobody takes it over before it is removed
            _remove(self.url + _LOCK)

    def _write(self, mode: Any) -> bool:
        """Write the lock if it has this version. Returns whether this process then holds it."""
        self.renewals += 1
        content = json.dumps({"token": self.token, "seconds": self.seconds, "renewals": self.renewals}).encode()
        begun = _now()
        try:
            self.version = clients.put(self.url + _LOCK, content, mode)
        except (Conflict, FileNotFoundError, IncompleteError) as error:
            # After a lost response it is unknown whether the lock was written, now or before: so the lock is read.
            there = _read(self.url)
            if there is None or there[0].get("token") != self.token:
                if isinstance(error, IncompleteError) and (there is None or there[1] == mode):
                    raise
                return False
            self.version = there[1]
            if there[0].get("renewals") != self.renewals:
                if isinstance(error, IncompleteError):
                    raise
                return self._write(self.version)
        self.renewed = begun
        return True


def _now() -> float:
    """Seconds on this machine's clock, including those of suspension if possible."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _read(url: str) -> tuple[dict[str, Any], Version, datetime] | None:
    """Content, version and time of a lock; None if there is none."""
    at = address(url + _LOCK)
    try:
        with plain_errors(url):
            found = clients.client(at.scheme, at.bucket).get(at.key)
            content = bytes(found.bytes())
    except FileNotFoundError:
        return None
    try:
        values = json.loads(content)
    except ValueError:
        values = {}
    meta = found.meta
    return values if isinstance(values, dict) else {}, (meta["e_tag"], meta["version"]), meta["last_modified"]


@contextmanager
def _removed(url: str) -> Iterator[None]:
    """Remove the object at the end. An earlier error takes precedence over a failed removal: a key that may not write
    may not remove either."""
    try:
        yield
    except BaseException:
        with suppress(BigKPCAError):
            _remove(url)
        raise
    _remove(url)


def _remove(url: str) -> None:
    at = address(url)
    with plain_errors(url), suppress(FileNotFoundError):
        clients.client(at.scheme, at.bucket).delete(at.key)


def _check_conditional(url: str) -> None:
    """Raise SpecError if the server overwrites an existing object, or a version other than the one named. Checked once
    per process and bucket."""
    bucket = address(url).root
    if bucket in _TESTED:
        return
    probe = f"{url}{_LOCK}-test-{secrets.token_hex(8)}"
    with _removed(probe):
        try:
            first = clients.put(probe, b"first", "create")
        except SpecError as error:
            raise SpecError(f"{str(error).replace(probe, url)}; this command writes there") from None
        refused = any(first) and _refused(probe, "create")
        if refused:
            clients.put(probe, b"second", first)
            refused = _refused(probe, first)
    if not refused:
        raise SpecError(
            f"{url}: this server ignores conditional writes (If-None-Match, If-Match), so two runs could write one "
            "output at once: write to another server or to a local path"
        )
    _TESTED.add(bucket)


def _refused(url: str, mode: Any) -> bool:
    try:
        clients.put(url, b"third", mode)
    except Conflict:
        return True
    return False
