"""A group of the real service continues without a rank that it may lose."""

from typing import TYPE_CHECKING, Any

from language_model import corpus
from language_model.prepare_data import prepare

from tests.support.trainers.held import Held
from tests.support.trainings import end_of
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
else:
    ForkedPython = Server = Any

SMALL = {"LAYERS": "2", "WIDTH": "32", "CONTEXT": "32", "BATCH_SIZE": "8", "STEPS": "60"}
SERVERS = {"STRATEGY": "parameter_server", "SERVERS": "2", "STANDBY": "true"}
KILLED = 1
"""The second of the two servers. Rank 3 is its standby."""


def test_a_standby_takes_over_in_the_same_attempt(forked_python: ForkedPython, server: Server) -> None:
    held = Held(server.folder, forked_python.path)
    held.hold(attempt=1, step=3)
    (server.folder / "config.toml").write_text(
        f'[scheduling]\ncapacity = 5\n[process]\npath = "{held.path}"\n'
    )
    version = prepare(corpus.FILE.path().read_bytes(), str(server.folder / "storage"), "dialog").version
    parameters = {**SMALL, **SERVERS, "MAX_LOST_INSTANCES": "1"}
    with server.start() as client:
        job = client.submit("language-model", "dialog", version, instances=5, parameters=parameters)
        for seen in client.watch(job):
            if seen.progress.step >= 3:
                break
        assert seen.status == pb.running, seen
        server.rank(job, KILLED).kill()
        held.release(attempt=1)
        ended = end_of(client, job)
        log = "".join(piece.text for piece in client.logs(job, all_ranks=True))
    assert (ended.status, ended.attempt) == (pb.succeed, 1), (ended.diagnosis, log)
    assert ended.progress.step == 60
    lost = ended.ranks[KILLED]
    assert lost.note.startswith(f"Lost, and the others go on: Rank {KILLED} was ended by SIGKILL"), lost
    assert [rank.phase for rank in ended.ranks].count(lost.phase) == 1, "all others have succeeded"
