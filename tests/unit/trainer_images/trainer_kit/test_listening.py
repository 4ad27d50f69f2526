import socket
import threading
from collections.abc import Iterator

import pytest
from trainer_kit.listening import await_end

SOON = 20


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def waiting_for(listener: socket.socket) -> threading.Thread:
    host, port = listener.getsockname()
    waiting = threading.Thread(target=await_end, args=[f"{host}:{port}"], daemon=True)
    waiting.start()
    return waiting


def test_a_wait_ends_with_the_process_that_listens(listener: socket.socket) -> None:
    waiting = waiting_for(listener)
    connection, _ = listener.accept()
    connection.send(b"what a peer may say first")
    assert waiting.is_alive()
    listener.close()
    connection.close()
    waiting.join(SOON)
    assert not waiting.is_alive()


def test_a_wait_goes_on_if_only_its_connection_is_closed(listener: socket.socket) -> None:
    waiting = waiting_for(listener)
    for _ in range(3):
        listener.accept()[0].close()
    assert waiting.is_alive()
    listener.close()
    waiting.join(SOON)
    assert not waiting.is_alive()


def test_a_process_that_has_ended_is_not_waited_for(listener: socket.socket) -> None:
    address = "{}:{}".format(*listener.getsockname())
    listener.close()
    await_end(address)
