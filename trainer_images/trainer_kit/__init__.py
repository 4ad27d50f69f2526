"""A small library for training code that runs as one process or as a group of processes.

It depends only on the environment variables of the training service:

* `process.main` runs a training function and ends the process with its exit code;
* `group` joins the processes that train together, `horovod` joins a Horovod group;
* `mpi` runs an MPI program on all instances, without ssh;
* `environment` and `job` read the environment variables;
* `progress` reports progress and metrics;
* `checkpoints` saves and resumes a run, `sampling` keeps the position in the data;
* `artifacts` publishes and opens models;
* `seeds` makes a run reproducible.
"""
