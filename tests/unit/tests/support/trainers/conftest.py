from tests.support.trainers.fork_fixtures import forks

__all__ = ["forks"]
