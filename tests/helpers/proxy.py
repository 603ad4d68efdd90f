"""A TCP proxy in front of a server, which resets, stalls or cuts connections, and tells what was asked."""

import re
import socket
import struct
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread

_REQUEST = re.compile(rb"^(GET|PUT|HEAD|POST|DELETE) (\S+) HTTP/1")
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset


@dataclass
class Proxy:
    """What happens to connections from now on, and the requests that came.

    pass: nothing. reset: the client gets a reset at the next bytes. stall: bytes wait. cut: connections end in place of
    the next answer. `answer` gets method and path of each request, and may give the whole answer, which the server then
    does not see.
    """

    to: int
    mode: str = "pass"
    answer: Callable[[str, str], bytes | None] = lambda method, path: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    ended: bool = False
    _listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self):
        return self._listening.getsockname()[1]

    def accept(self):
        """Serve connections until the end. Work of a thread."""
        self._listening.settimeout(0.05)
        with self._listening:
            while not self.ended:
                with suppress(OSError):
                    client, _ = self._listening.accept()
                    Thread(target=self._connected, args=(client,), daemon=True).start()

    def _connected(self, client):
        with client, socket.create_connection(("127.0.0.1", self.to)) as server:
            for end in (client, server):
                end.settimeout(0.05)
            back = Thread(target=self._pump, args=(server, client, False), daemon=True)
            back.start()
            self._pump(client, server, True)
            back.join()

    def _pump(self, source, target, asking):
        with suppress(OSError):
            while not self.ended:
                try:
                    data = source.recv(2**16)
                except TimeoutError:
                    continue
                if not data or not self._passed(data, source, target, asking):
                    break
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _passed(self, data, source, target, asking):
        """Do with these bytes what the mode says; whether the connection goes on."""
        if asking and (found := _REQUEST.match(data)):
            self.requests.append((found[1].decode(), found[2].decode()))
            if (own := self.answer(*self.requests[-1])) is not None:
                source.sendall(own)
                return True
        while self.mode == "stall" and not self.ended:
            time.sleep(0.02)
        if self.mode == "reset":
            client = source if asking else target
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return False
        if self.mode == "cut" and not asking:
            return False
        target.sendall(data)
        return True


@contextmanager
def proxy(to):
    """A proxy in front of a port of this machine, which runs in threads."""
    made = Proxy(to)
    accepting = Thread(target=made.accept, daemon=True)
    accepting.start()
    try:
        yield made
    finally:
        made.ended = True
        accepting.join(20)
