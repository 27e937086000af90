"""A port before the broker that refuses connections, takes them and never answers, or forwards them."""

import contextlib
import socket
import threading


class Gate:
    """Refuses until `open_silent()` or `forward()`; after `forward()` new connections reach the broker.

    A client finds the brokers' own addresses through it, so it stands for "nothing answers at the start".
    """

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._forwards = False
        self._threads = []
        self._sockets = []

    def open_silent(self):
        """Take connections and never answer."""
        self._listener.listen(64)
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()

    def forward(self):
        """Let connections through; the silent ones end."""
        self._forwards = True
        self._end_all()

    def close(self):
        """End everything."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end_all()

    def _end_all(self):
        for taken in self._sockets:
            with contextlib.suppress(OSError):
                taken.shutdown(socket.SHUT_RDWR)
            taken.close()
        self._sockets = []

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            if self._forwards:
                server = socket.create_connection(self._target)
                self._sockets.append(server)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)
