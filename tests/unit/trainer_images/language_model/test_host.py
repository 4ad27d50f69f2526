"""The simulated device of a CPU: the tensors on the device and on its host, and the copies between both."""

import torch
from language_model.host import Host
from language_model.memory_meter import MemoryMeter

CPU = torch.device("cpu")
KILOBYTE = 1000


def test_copies_count_where_they_are() -> None:
    host = Host(CPU)
    with MemoryMeter([], host) as memory:
        x = torch.zeros(250)
        there = host.take(x)
        del x
        back = host.give(there)
    assert host.holds(there)
    assert not host.holds(back)
    assert (host.bytes_in, host.bytes_out) == (KILOBYTE, KILOBYTE)
    assert (memory.peak, memory.host_peak) == (KILOBYTE, KILOBYTE)


def test_a_copy_has_memory_of_its_own() -> None:
    host = Host(CPU)
    x = torch.zeros(3)
    copy = host.take(x)
    copy += 1
    assert x.tolist() == [0, 0, 0]


def test_an_operation_on_tensors_of_the_host_gives_one_of_the_host() -> None:
    host = Host(CPU)
    there, here = host.take(torch.zeros(250)), torch.zeros(250)
    with MemoryMeter([there, here], host) as memory:
        assert host.holds(there * 2 + 1)
        assert not host.holds(here * 2)
    assert memory.peak == 2 * KILOBYTE
    assert memory.host_peak == 3 * KILOBYTE  # the sum, and before that its first operand


def test_views_are_where_their_memory_is() -> None:
    host = Host(CPU)
    there = host.take(torch.zeros(250))
    assert host.holds(there[10:20].view(2, 5))


def test_memory_that_was_freed_is_not_taken_for_the_hosts_when_it_is_used_again() -> None:
    host = Host(CPU)
    for _ in range(100):
        host.take(torch.zeros(250))  # freed at once
        assert not host.holds(torch.zeros(250))
