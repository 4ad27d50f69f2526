"""A small library for training code that runs as one process or as a group of them.

It knows the environment contract of the training service and nothing else of it:

* `process.main` runs a training function as the whole life of a process;
* `group` joins the processes that train together, `horovod` those that do so by Horovod;
* `mpi` runs an MPI program over all instances, without ssh;
* `environment` and `job` read what the service says;
* `progress` tells how far training has come;
* `checkpoints` keeps a run, so that it goes on after a kill; `sampling` the place in the data;
* `artifacts` publishes a model, and opens one again;
* `seeds` makes a run repeatable.
"""
