"""A network between a service and its database, on the loopback, that can fall silent: it confirms everything and
passes nothing on, in either direction."""

from __future__ import annotations

import select
import socket
from threading import Event, Thread


class Network:
    """Passes bytes on to a port of this machine, as long as it is not `silent`."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open = Event()
        self._open.set()
        self._ended = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        self._open.clear()

    def come_back(self) -> None:
        """For new connections: what was said into the silence stays lost."""
        self._open.set()

    def end(self) -> None:
        self._ended = True
        self._open.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._pass, args=(near,), daemon=True).start()

    def _pass(self, near: socket.socket) -> None:
        far: socket.socket | None = None
        heard_silence = False
        while not self._ended:
            if not self._open.is_set():
                heard_silence = True
            ends = [near] if far is None else [near, far]
            ready, _, _ = select.select(ends, [], [], 0.02)
            if heard_silence or not self._open.is_set():
                for each in ready:  # swallowed: the kernel has confirmed it
                    if each is near and not near.recv(65536):
                        return  # the server at the far end hears nothing of it
                continue
            if far is None:
                far = socket.create_connection(("127.0.0.1", self._to))
            for each in ready:
                data = each.recv(65536)
                if not data:
                    near.close()
                    far.close()
                    return
                (far if each is near else near).sendall(data)
