"""Checkpoints: a run that is killed goes on from where it was.

    with checkpoints.kept(group, model, optimizer, schedule=schedule, batches=batches) as run:
        while batches.epoch <= EPOCHS:
            for batch in batches.rest_of_epoch():
                learn(batch)
                run.step()

* `keeping` is what training code uses, `settings` what can be chosen;
* `pace` says when, `saving` saves, `resuming` finds what to go on from;
* `state` gathers a run and puts it back, `random_state` the generators;
* `folder` is where checkpoints lie, under the `names` that say which counts, each with its `manifest`;
* `parts` writes and reads their files, `packing` says what may be in them, `durable` gets them onto the disk;
* `exchange` lets the processes agree.
"""

from trainer_kit.checkpoints.keeping import Kept, kept

__all__ = ["Kept", "kept"]
