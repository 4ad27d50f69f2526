"""The choice of ports for groups."""

from job_tracker.backends.process.ports import free_ports


def test_concurrent_searches_do_not_all_find_the_same_port() -> None:
    assert len({free_ports(1, 20000, 29999, ())[0] for _ in range(10)}) > 1


def test_the_last_free_port_is_found_from_any_start() -> None:
    [free] = free_ports(1, 20001, 29998, ())
    for _ in range(20):
        assert free_ports(1, free - 1, free + 1, {free - 1, free + 1}) == [free]
