"""TensorFlow: TF_CONFIG, as `tf.distribute.cluster_resolver.TFConfigClusterResolver` reads it."""

import json
from collections.abc import Mapping

from job_tracker.domain import naming
from job_tracker.frameworks.base import TRAINERS, GroupLayout, Role, StartedAsIs, Traits

_PS, _EVALUATOR = "ps", "evaluator"


class TensorFlow(StartedAsIs):
    """Clusters in which every task has the addresses of all tasks (tensorflow.org, "Distributed training").

    Without parameter servers, all trainers are workers, the first one is the chief, and
    MultiWorkerMirroredStrategy applies. With parameter servers, rank 0 is the chief, which coordinates the
    other tasks and decides when the job ends (ParameterServerStrategy). An evaluator gets the addresses of
    the cluster, but is not part of it.
    """

    traits = Traits(
        addresses_every_rank=True,
        roles={_PS: Role(needs_worker=True, serves=True), _EVALUATOR: Role(at_most=1)},
    )

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """Return the environment variables with which instance number `rank` joins its group."""
        role, index = layout.roles[rank], layout.index_in_role(rank)
        if servers := layout.of_role(_PS):
            kinds = {"chief": layout.of_role(naming.MASTER), "worker": layout.of_role(naming.WORKER)}
            kinds[_PS] = servers
            kind = "chief" if role == naming.MASTER else role
        else:
            kinds = {"worker": layout.of_role(*TRAINERS)}
            kind, index = ("worker", rank) if role in TRAINERS else (role, index)
        cluster = {name: [str(address) for address in addresses] for name, addresses in kinds.items()}
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}
