"""The loop of a parameter server or its standby. The leading server reports and saves for the group."""

import logging
import math
from contextlib import AbstractContextManager, ExitStack

import torch
import torch.distributed as dist
from trainer_kit import checkpoints, meeting
from trainer_kit.checkpoints import Kept
from trainer_kit.checkpoints.following import ending_with_leader
from trainer_kit.errors import GroupError, TrainingError
from trainer_kit.group import Group
from trainer_kit.progress import Reporter
from trainer_kit.termination import Terminated

from language_model import batch_size, data, memory, zero
from language_model.assembly import Learner
from language_model.layout import Layout
from language_model.parameter_server import shards, transport
from language_model.parameter_server.replica import Replica
from language_model.parameter_server.running import gather, serve
from language_model.parameter_server.server import ParameterServer
from language_model.parameter_server.shards import Shard
from language_model.parameter_server.transport import Mailbox

log = logging.getLogger(__name__)


class ServingLoop:
    """Serves a shard of the model, or stands by for its server."""

    def __init__(
        self,
        learner: Learner,
        layout: Layout,
        place: data.Place,
        group: Group,
        messages: dist.ProcessGroup,
        reporter: Reporter,
    ) -> None:
        self._learner = learner
        self._layout = layout
        self._place = place
        self._group = group
        self._messages = messages
        self._reporter = reporter
        self._collected_at: int | None = None
        """The number of updates when the learner last got the weights and the state of all shards."""

    def run(self) -> dict[str, float] | None:
        """Serve until the training ends.

        Return the last reported metrics if this process leads at the end, otherwise None.
        """
        roles = self._layout.roles
        report: dict[str, float] = {}
        with ExitStack() as stack:
            run = stack.enter_context(self._kept()) if self._group.is_master else None
            if run is None:
                stack.enter_context(ending_with_leader())
            steps, self._place.taken = start_of(self._group, run, self._place)
            self._begin(steps)
            # A leader that ends on SIGTERM has saved a checkpoint. BYE lets all other processes end, too.
            stack.push(lambda kind, *_: self._mailbox.leave() if kind is Terminated else None)
            for update in serve(self._replica, self._mailbox):
                examples = examples_of(update.number, self._layout)
                self._place.taken += examples
                if self._replica.leader is None:
                    continue
                if run is None:
                    run = self._take_over(stack, update.number - 1)
                if not math.isfinite(update.loss):
                    raise TrainingError(f"the loss is not finite in step {update.number}: try a smaller LR")
                report = {"loss": update.loss, **self._staleness(), **self._traffic(update.number - steps)}
                run.step()
                self._reporter.report(step=run.steps, total_steps=self._layout.steps, examples=examples)
                self._reporter.report(**report)  # type: ignore[arg-type]  # all of these are metrics
            if self._replica.leader is None:
                self._mailbox.close()
                return None
            if run is None:
                self._take_over(stack, self._server.version)
            self._collect()
            self._mailbox.close(first=roles.standby_of(0))
            self._log()
        return report

    def _kept(self) -> AbstractContextManager[Kept]:
        alone = Group(rank=0, size=1, device=self._group.device)  # the others have nothing to save
        return checkpoints.kept(
            alone,
            self._learner.model,
            self._learner.optimizer,
            before_save=self._collect,
            place=self._place,
        )

    def _begin(self, steps: int) -> None:
        """Get the state of the shard from rank 0, and build the server."""
        layout, roles, rank = self._layout, self._layout.roles, self._group.rank
        state = self._own_state()
        self._shard = Shard(state[0].to(self._group.device))
        self._optimizer = zero.undivided(self._shard, layout)
        shards.set_state(self._shard, self._optimizer, state, steps)
        memory.offload_state(self._optimizer, layout, self._learner.host)
        self._server = ParameterServer(
            self._shard,
            self._optimizer,
            layout.rule,
            lambda step: batch_size.at_step(step, layout).learning_rate,
            version=steps,
        )
        peers = {*range(layout.world_size)} - {rank}
        self._mailbox = Mailbox(peers, state.dtype, self._messages, meeting.patience())
        self._replica = Replica(
            rank,
            roles,
            self._server,
            layout.steps,
            lambda: shards.state_of(self._shard, self._optimizer),
            self._mailbox,
        )

    def _own_state(self) -> torch.Tensor:
        roles, rank = self._layout.roles, self._group.rank
        parts = shards.split(shards.state_of(self._learner.model, self._learner.optimizer), roles.servers)
        own = parts[roles.shard_of(rank)].contiguous()
        if rank:
            transport.receive(own, 0, self._messages, meeting.patience())
        else:
            for replica in roles.replicas[1:]:
                state = parts[roles.shard_of(replica)].contiguous()
                transport.send(state, replica, self._messages, meeting.patience())
        return own

    def _take_over(self, stack: ExitStack, steps: int) -> Kept:
        """Lead from now on, after `steps` updates: report and save for the group."""
        logging.getLogger().setLevel(logging.INFO)
        self._reporter.lead()
        taken = self._place.taken
        run = stack.enter_context(self._kept())
        # `_kept` has restored the last checkpoint, but the state of this server is newer.
        run.steps, self._place.taken = steps, taken
        text = "rank %d leads after step %d: rank 0, the leading parameter server, is lost"
        log.warning(text, self._group.rank, steps)
        return run

    def _collect(self) -> None:
        """Give the learner the weights and the state of all shards."""
        version = self._server.version
        if self._collected_at != version:
            own = shards.state_of(self._shard, self._optimizer)
            others = gather(self._replica, self._mailbox)
            whole = torch.cat([own, *(state.view(len(own), -1) for state in others)], dim=1)
            shards.set_state(self._learner.model, self._learner.optimizer, whole, version)
            self._collected_at = version

    def _staleness(self) -> dict[str, float]:
        """Return the staleness of the applied gradients, and the number of dropped ones."""
        staleness = self._server.staleness
        total = sum(staleness.values())
        return {
            "staleness_mean": sum(value * count for value, count in staleness.items()) / total,
            "staleness_max": max(staleness),
            "dropped_gradients": self._server.dropped,
        }

    def _traffic(self, updates: int) -> dict[str, float]:
        """Return the bytes of the busiest server, sent and received, per update."""
        assert self._replica.leader is not None
        sent, received = max(self._replica.leader.traffic.values(), key=sum)
        return {"server_sent_bytes": sent / updates, "server_received_bytes": received / updates}

    def _log(self) -> None:
        """Log the staleness of gradients. For each server, log the bytes that it sent and received, and the
        number of gradients and weights in these bytes.
        """
        histogram = ", ".join(f"{count} x {value}" for value, count in sorted(self._server.staleness.items()))
        log.info("gradients by staleness: %s; %d dropped", histogram or "none", self._server.dropped)
        leader, gradients = self._replica.leader, self._replica.gradients
        assert leader is not None
        for shard, (sent, received) in sorted({**leader.traffic, 0: self._mailbox.traffic}.items()):
            log.info(
                "parameter server %d sent %d and received %d bytes for %d gradients of %d bytes, and as many "
                "weights; %d workers got their first weights",
                shard, sent, received, gradients, self._shard.weights.nbytes, len(self._layout.roles.workers),
            )  # fmt: skip


def start_of(group: Group, run: Kept | None = None, place: data.Place | None = None) -> tuple[int, int]:
    """Return the numbers of steps and examples of earlier attempts. Every process must call this.

    Rank 0 passes `run` and `place`, and sends their numbers to all. Raises GroupError if rank 0 is lost.
    """
    numbers = [run.steps, place.taken] if run is not None and place is not None else [0, 0]
    start = torch.tensor(numbers, device=group.device)
    try:
        dist.broadcast(start, src=0)
    except RuntimeError as error:
        raise GroupError("rank 0, which has restored the training, is gone or does not answer") from error
    steps, taken = start.tolist()
    return steps, taken


def share_of(step: int, layout: Layout) -> int:
    """Return the number of examples per gradient. The gradients of one update together cover its batch."""
    return batch_size.at_step(step, layout).batch_size // layout.batch_shares


def examples_of(step: int, layout: Layout) -> int:
    """Return the number of examples that workers take per update, including those of dropped gradients."""
    gradients = len(layout.roles.workers) if layout.rule.in_step else layout.rule.gradients
    return share_of(step, layout) * gradients
