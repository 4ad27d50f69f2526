"""Adds a latency to a link: `python -m benchmarks.relay SECONDS FIRST SECOND`.

Creates two Ethernet devices (tap), FIRST and SECOND, in the network namespace of this process, and passes
each frame from one to the other after SECONDS. Prints a line when the devices exist. The kernel kills this
process when its parent ends. The relay is one Python process, which carried 100 Mbit/s in a test. While other
programs keep this process from running, frames are late. Such delays are short relative to a latency of 5 ms,
but longer than a latency of 0.1 ms.
"""

import ctypes
import fcntl
import heapq
import os
import selectors
import signal
import struct
import sys
import time

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_PR_SET_PDEATHSIG = 1
LARGEST_FRAME = 65_536


def main(latency: float, names: tuple[str, str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    first, second = (_tap(name) for name in names)
    print("ready", flush=True)
    other = {first: second, second: first}
    waiting: list[tuple[float, int, int, bytes]] = []  # due, number, device, frame
    number = 0
    with selectors.DefaultSelector() as selector:
        for device in other:
            selector.register(device, selectors.EVENT_READ)
        while True:
            pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            for key, _ in selector.select(pause):
                try:
                    frame = os.read(key.fd, LARGEST_FRAME)
                except OSError:  # the device is gone, with its namespace
                    return
                number += 1
                heapq.heappush(waiting, (time.monotonic() + latency, number, other[key.fd], frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, device, frame = heapq.heappop(waiting)
                try:
                    os.write(device, frame)
                except OSError:  # the device is down, or its queue is full; networks lose frames, too
                    continue


def _tap(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return device


if __name__ == "__main__":
    main(float(sys.argv[1]), (sys.argv[2], sys.argv[3]))
