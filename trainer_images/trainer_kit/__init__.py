"""A small library for training code that runs as one process or as a group of processes.

Of the training service, it needs only the environment variables. Its main modules:

* `process.main` runs a training function and ends the process with its exit code;
* `group` joins the processes that train together, `horovod` joins a Horovod group;
* `mpi` runs an MPI program on all instances, without ssh;
* `environment` and `job` read the environment variables;
* `progress` reports progress and metrics;
* `checkpoints` saves and resumes a run, `sampling` keeps the position in the data;
* `staging` copies a dataset to the disk of every rank, `artifacts` publishes and opens models;
* `batch_norm` and `contrast` compute over the examples of the whole group;
* `seeds` makes a run reproducible.
"""
