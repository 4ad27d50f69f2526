"""The ranks of a parameter server: servers, standbys, workers. This module does not need PyTorch."""

from collections.abc import Set
from dataclasses import dataclass

from trainer_kit.errors import GroupError, ParameterError


@dataclass(frozen=True)
class Roles:
    """The roles of the ranks.

    Ranks 0 to k-1 serve a shard each. The next k ranks stand by, if there are standbys. The others work. Rank
    0 leads: it decides the order in which all servers take gradients. Raises ParameterError if no rank is
    left to work.
    """

    world_size: int
    servers: int = 1
    """The number k of servers, which is also the number of shards."""
    has_standby: bool = False
    """Whether each server has a standby."""

    def __post_init__(self) -> None:
        if self.workers:
            return
        serving = f"the {self.servers} servers" if self.servers > 1 else "rank 0, the server,"
        if self.has_standby:
            serving += f" and as many standbys (STANDBY=true) are {len(self.replicas)} ranks and"
        raise ParameterError(
            f"WORLD_SIZE {self.world_size} leaves a parameter server no worker: {serving} compute no "
            f"gradients. SERVERS {self.servers} needs at least {len(self.replicas) + 1} ranks"
        )

    @property
    def replicas(self) -> range:
        """The servers and their standbys."""
        return range(self.servers * (2 if self.has_standby else 1))

    @property
    def workers(self) -> range:
        """The ranks that compute gradients."""
        return range(len(self.replicas), self.world_size)

    def shard_of(self, replica: int) -> int:
        """Return the number of the shard that this server or standby holds."""
        return replica % self.servers

    def standby_of(self, shard: int) -> int | None:
        """Return the rank of the standby for this shard's server; None if there is none."""
        return shard + self.servers if self.has_standby else None

    def check_servers(self, lost: Set[int]) -> None:
        """Raise GroupError if a shard has neither its server nor a standby left."""
        for shard in range(self.servers):
            if {shard, self.standby_of(shard) or shard} <= lost:
                name = f"parameter server {shard}" if self.servers > 1 else "the parameter server"
                both = f" with its standby, rank {self.standby_of(shard)}," if self.has_standby else ""
                raise GroupError(f"{name}{both} is gone or does not answer")
