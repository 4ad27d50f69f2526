"""Data parallel training of a linear classifier with Horovod on PyTorch."""

import os

import horovod.torch as hvd
import torch
from question_features import TERMS, load, shares
from torch.nn.functional import cross_entropy
from trainer_kit import horovod, process
from trainer_kit.artifacts import publishing
from trainer_kit.checkpoints import arrays, groups
from trainer_kit.job import Job
from trainer_kit.progress import present

EPOCHS, BATCH_SIZE = int(os.environ.get("EPOCHS", "10")), int(os.environ.get("BATCH_SIZE", "32"))
LR, SEED = float(os.environ.get("LR", "2")), int(os.environ.get("SEED", "1"))


def train() -> None:
    """Train in this process. Every process of the group runs this."""
    with horovod.joined():
        job = Job.from_environment()
        x, y = read(job.data_uri, "train")
        torch.manual_seed(SEED + hvd.rank())  # rank 0 broadcasts its weights below
        model = torch.nn.Linear(TERMS, int(y.max()) + 1)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        # Averages the gradients of all processes before each step.
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=LR), model.named_parameters()
        )
        state = {"model": model, "optimizer": optimizer}  # the same in all processes
        own: dict[str, list[torch.Tensor]] = {"losses": []}  # this process's losses in this epoch
        per_epoch = len(y) // (BATCH_SIZE * hvd.size())

        with arrays.kept(groups.horovod(), state, own) as run:  # a restarted group resumes from a checkpoint
            for epoch in range(run.steps // per_epoch + 1, EPOCHS + 1):
                done = run.steps % per_epoch
                losses = own["losses"] = own["losses"][:done]
                for batch in shares(len(y), BATCH_SIZE, hvd.size(), SEED, epoch)[done:, hvd.rank()]:
                    loss = cross_entropy(model(x[batch].float()), y[batch])
                    optimizer.zero_grad()
                    torch.autograd.backward(loss)
                    optimizer.step()
                    losses.append(loss.detach())
                    run.step()  # saves a checkpoint if one is due
                mean = float(hvd.allreduce(torch.stack(losses).mean()))  # average by default
                if hvd.rank() == 0:
                    present().report(step=run.steps, epoch=epoch, total_epochs=EPOCHS, loss=mean)

        if hvd.rank() == 0:
            x, y = read(job.data_uri, "test")
            accuracy = float((model(x.float()).argmax(dim=1) == y).float().mean())
            print(f"test accuracy {accuracy:.3f} on {len(y)} questions")
            with publishing(job.model_uri, {"job_id": job.job_id, "test_accuracy": accuracy}) as folder:
                torch.save(model.state_dict(), folder / "model.pt")


def read(uri: str, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Load the features and classes of a split of the data."""
    features, classes = load(uri, split)
    return torch.from_numpy(features), torch.from_numpy(classes).long()


if __name__ == "__main__":
    process.run(train)
