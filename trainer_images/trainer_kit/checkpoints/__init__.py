"""Checkpoints: a killed run resumes from its last checkpoint.

    with checkpoints.kept(group, model, optimizer, schedule=schedule, batches=batches) as run:
        while batches.epoch <= EPOCHS:
            for batch in batches.rest_of_epoch():
                learn(batch)
                run.step()

`kept` is for PyTorch, and `arrays.kept` for any other framework. The modules:

* `keeping` has the object that training code uses, `settings` has the settings;
* `pace` decides when to save, `saving` saves, `resuming` finds the checkpoint to resume from;
* `folder` is the folder of checkpoints, `names` defines the names and their order, `manifest` lists the
  parts, `hashed_file` hashes them, `durable` syncs them to disk;
* `exchange` lets the processes exchange values and agree;
* `form` is the interface through which these modules save and restore a state, and `random_state` reads and
  restores the state of the random generators;
* `pytorch` has the form of PyTorch's states, and the only modules that need PyTorch;
* `arrays` has the form of all other states: arrays and plain values. `tree` writes and restores them, and
  only rank 0 saves. `groups` has the exchange of each framework.
"""

from typing import TYPE_CHECKING, Any

from trainer_kit.checkpoints.keeping import Kept

if TYPE_CHECKING:
    from trainer_kit.checkpoints.pytorch.keeping import kept

__all__ = ["Kept", "kept"]


def __getattr__(name: str) -> Any:
    """Import PyTorch only when `kept` is used."""
    if name == "kept":
        from trainer_kit.checkpoints.pytorch.keeping import kept

        return kept
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
