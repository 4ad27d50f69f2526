"""Sweeps: many trainings over a space of parameters, in search of the best.

* `space` and `settings` say what is searched and how, and refuse what makes no sense;
* `methods` proposes the parameters of the next trial: a grid, at random, or `optuna_methods`' TPE, beside
  which stands ASHA, the pruning of trials that lag behind;
* `events` are what happens to a sweep, and `history` what they add up to; `folder` keeps them on the disk;
* `objective` tells how good a job was; `runner` submits, looks, prunes, until all trials have ended.

The events on the disk are the only state: what is in memory, Optuna's studies included, is made from them.
"""
