"""The table of crash points has every change that the stores can make. A new change must be added there."""

from tests.crash import table


def test_every_operation_of_the_writer_of_sqlite_is_in_the_table() -> None:
    assert set(table.sqlite_writes()) == table.SQLITE.keys()


def test_every_script_of_redis_is_in_the_table_as_a_change_or_as_a_read() -> None:
    assert set(table.redis_scripts()) == table.REDIS.keys() | table.REDIS_READS
    assert not table.REDIS.keys() & table.REDIS_READS
