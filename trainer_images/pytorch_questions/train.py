"""Data parallel training with PyTorch: one or several processes per instance, optionally elastic."""

import logging
import os

import torch
from question_features import TERMS, load
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from trainer_kit import checkpoints, process
from trainer_kit.artifacts import publishing
from trainer_kit.group import Group
from trainer_kit.job import Job
from trainer_kit.progress import reporting
from trainer_kit.sampling import EpochSampler

EPOCHS, BATCH_SIZE = int(os.environ.get("EPOCHS", "5")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "3")), int(os.environ.get("SEED", "1"))


def train(group: Group) -> None:
    """Train in this process. With torchrun, this runs again whenever the group has changed."""
    job = Job.from_environment()
    x, y = read(job.data_uri, "train")
    torch.manual_seed(SEED)  # all processes start with the same weights
    model = torch.nn.Linear(TERMS, int(y.max()) + 1)
    grouped = group.wrap(model)  # DistributedDataParallel averages the gradients
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    place = EpochSampler(len(y), group, SEED)  # the examples of this process, in a group of any size
    own = torch.Generator()
    batches = DataLoader(TensorDataset(x, y), BATCH_SIZE, sampler=place, drop_last=True, generator=own)
    with reporting(group) as reporter, checkpoints.kept(group, model, optimizer, place=place) as run:
        while place.epoch <= EPOCHS:
            for features, classes in batches:
                optimizer.zero_grad()
                loss = cross_entropy(grouped(features.float()), classes)
                torch.autograd.backward(loss)
                optimizer.step()
                place.take(BATCH_SIZE)
                run.step()  # saves a checkpoint if one is due; a restarted group resumes from it
                reporter.report(
                    step=run.steps,
                    epoch=place.epoch,
                    total_epochs=EPOCHS,
                    examples=BATCH_SIZE * group.size,  # in all processes; the reporter derives examples/s
                    loss=loss.item(),
                )
            place.next_epoch()
    if group.is_master:
        x, y = read(job.data_uri, "test")
        accuracy = float((model(x.float()).argmax(dim=1) == y).float().mean())
        logging.info("test accuracy %.3f on %d questions", accuracy, len(y))
        with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
            torch.save(model.state_dict(), folder / "model.pt")


def read(uri: str, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Load the features and classes of a split of the data."""
    features, classes = load(uri, split)
    return torch.from_numpy(features), torch.from_numpy(classes).long()


if __name__ == "__main__":
    process.main(train)
