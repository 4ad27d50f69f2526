"""Viewers of the dashboard, in a separate process. Each viewer keeps a page with live updates open.

The process reads orders from its standard input, one JSON object per line. It answers each order with one
line: the number of events so far. {"url": …, "paths": […]} opens a stream for each path, and is answered when
all streams have sent their first bytes. {} is answered at once. The streams end with the process.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

_AT_ONCE = 1 << 16


class Viewers:
    """The process with the viewers."""

    def __init__(self, url: str, paths: Sequence[str]) -> None:
        """Open the pages."""
        argv = [sys.executable, "-m", "benchmarks.viewers"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ask({"url": url, "paths": list(paths)})

    def events(self) -> int:
        """Return the number of events that all viewers together have received."""
        return self._ask({})

    def close(self) -> None:
        """Close the pages."""
        self._process.communicate(timeout=15)

    def _ask(self, order: object) -> int:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


class _Viewer:
    def __init__(self) -> None:
        self.events = 0
        self.is_open = asyncio.Event()

    async def watch(self, host: str, port: int, path: str) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(
            f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\naccept: text/event-stream\r\n\r\n".encode()
        )
        status = await reader.readline()
        if b" 200 " not in status:
            sys.exit(f"{path}: {status.decode()}")
        while data := await reader.read(_AT_ONCE):
            # An event whose name is split between two reads is not counted; this is rare.
            self.events += data.count(b"event: ")
            self.is_open.set()
        raise RuntimeError(f"{path}: the stream has ended")


async def _main() -> None:
    viewers: list[_Viewer] = []
    tasks = []
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        if paths := order.get("paths"):
            place = urlsplit(order["url"])
            assert place.hostname
            assert place.port
            for path in paths:
                viewers.append(_Viewer())
                tasks.append(asyncio.create_task(viewers[-1].watch(place.hostname, place.port, path)))
            async with asyncio.timeout(60):
                for viewer in viewers:
                    await viewer.is_open.wait()
        for task in tasks:
            if task.done():
                task.result()
        print(sum(viewer.events for viewer in viewers), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
