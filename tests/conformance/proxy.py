"""A proxy of HTTP that keeps what it gets."""

from __future__ import annotations

import os
import re
import socket
import threading
from typing import Any

# gRPC reads the lower case, Go both.
VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
EXCEPTIONS = ("no_proxy", "no_grpc_proxy")


class Proxy:
    """Connects to this machine, whatever the requested name; thread-safe."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._seen: list[dict[str, Any]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def environment(self) -> dict[str, str]:
        """Returns the environment of a process that is to use the proxy."""
        names = {*VARIABLES, *EXCEPTIONS}
        kept = {name: text for name, text in os.environ.items() if name.lower() not in names}
        address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        spellings = [*VARIABLES, *(name.upper() for name in VARIABLES)]
        return kept | dict.fromkeys(spellings, address)

    def take(self, port: str) -> list[dict[str, Any]]:
        """Returns, once, what was requested from and sent to a port: ``connect`` and ``sent``."""
        with self._lock:
            # gRPC requests all addresses of a list at once, with a port of its own.
            named = re.compile(rf":{port}\b")
            taken = [entry for entry in self._seen if named.search(entry["connect"])]
            self._seen = [entry for entry in self._seen if entry not in taken]
            return [dict(entry) for entry in taken]

    def stop(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            self._connect(client)
        except OSError:
            client.close()  # a side has gone, as with a client that gives up

    def _connect(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            more = client.recv(4096)
            if not more:
                return
            head += more
        address = head.split()[1].decode()
        entry = {"connect": address, "sent": ""}
        with self._lock:
            self._seen.append(entry)
        server = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        threading.Thread(target=self._pump, args=(server, client, {}), daemon=True).start()
        self._pump(client, server, entry)

    def _pump(self, source: socket.socket, sink: socket.socket, entry: dict[str, Any]) -> None:
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    entry["sent"] = entry.get("sent", "") + data.decode("latin-1")
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the other side has gone
