"""Sweeps: searches for the best parameters with many jobs.

* `space` and `settings` define and check the values and the settings of a search;
* `methods` proposes the parameters of the next trial, by grid, random search or TPE (`optuna_methods`, which
  also has ASHA for the pruning of poor trials);
* `events` are the events of a sweep, `history` is the state that follows from them, and `folder` stores them;
* `objective` reads the value of a job, and `runner` submits, checks and prunes trials until all have ended.

The events on disk are the only state. Everything in memory, including Optuna's studies, is built from them.
"""
