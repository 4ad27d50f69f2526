"""Checkpoints: a killed run resumes from its last checkpoint.

    with checkpoints.kept(group, model, optimizer, schedule=schedule, batches=batches) as run:
        while batches.epoch <= EPOCHS:
            for batch in batches.rest_of_epoch():
                learn(batch)
                run.step()

* `keeping` is the interface for training code, `settings` are its settings; * `pace` decides when to save,
`saving` saves, `resuming` finds the checkpoint to resume from; * `state` gathers and restores a run,
`random_state` its random generators; * `folder` is the folder of checkpoints, `names` defines the names and
their order, `manifest` lists the parts; * `parts` writes and reads the files, `packing` restricts their
types, `durable` syncs them to disk; * `exchange` lets the processes agree.
"""

from trainer_kit.checkpoints.keeping import Kept, kept

__all__ = ["Kept", "kept"]
