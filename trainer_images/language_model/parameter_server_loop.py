"""The training loop with parameter servers: some ranks update the weights, others compute gradients."""

import logging

import torch.distributed as dist
from torch import Tensor
from trainer_kit import meeting
from trainer_kit.checkpoints.following import ending_with_leader
from trainer_kit.group import Group
from trainer_kit.progress import Reporter

from language_model import data
from language_model.assembly import Learner
from language_model.dropout import Position
from language_model.layout import Layout
from language_model.parameter_server import flat
from language_model.parameter_server.running import work
from language_model.parameter_server.transport import Mailbox, new_group
from language_model.parameter_server.worker import Worker
from language_model.serving_loop import ServingLoop, share_of, start_of

log = logging.getLogger(__name__)


def fit(
    learner: Learner, layout: Layout, blocks: Tensor, group: Group, reporter: Reporter
) -> dict[str, float] | None:
    """Take the remaining steps. The rank that leads at the end returns the last reported metrics.

    Other ranks return None. The models of the leading rank and of the workers have the last weights.
    The group may have lost ranks, so it cannot exchange anything afterwards.
    """
    messages = new_group()
    examples = data.Examples(blocks, layout.context)
    place = data.Place(len(examples), layout.seed)
    if group.rank in layout.roles.replicas:
        return ServingLoop(learner, layout, place, group, messages, reporter).run()
    with ending_with_leader():
        _work(learner, layout, examples, place, group, messages)
    return None


def _work(
    learner: Learner,
    layout: Layout,
    examples: data.Examples,
    place: data.Place,
    group: Group,
    messages: dist.ProcessGroup,
) -> None:
    begun, taken = start_of(group)
    roles, place.taken = layout.roles, taken
    begins = [taken]
    """The number of examples taken before each step, starting with the first step of this attempt."""

    def learn(version: int, wanted: int) -> float:
        share = share_of(version + 1, layout)
        number = group.rank - roles.workers.start if wanted < 0 else wanted
        if wanted >= 0:  # a worker may compute several shares of a step, or none: find where the step begins
            while (step := begun + len(begins)) <= version:
                begins.append(begins[-1] + share_of(step, layout) * len(roles.workers))
            place.taken = begins[version - begun]
        numbers = place.take(share * len(roles.workers)).view(-1, share)[number]
        position = Position(version + 1, share * number)
        loss = learner.find_gradients(examples.batch(numbers, group.device), position)
        assert loss is not None  # the loss is None only in a pipeline
        return loss

    dtype = flat.weights_of(learner.model).dtype
    mailbox = Mailbox(roles.replicas, dtype, messages, meeting.patience())
    count = work(learner.model, learn, Worker(roles, mailbox), mailbox, layout.steps)
    mailbox.close()
    log.info("%d gradients computed", count)
