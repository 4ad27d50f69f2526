"""Runs an MPI program on all instances of a group, without ssh: `python -m trainer_kit.mpi COMMAND…`.

Every instance runs this command. Instance 0 is the launcher: it waits for the others at MASTER_PORT and runs
`mpirun COMMAND…`. A host is an instance that runs processes. For each host, mpirun starts our agent instead
of ssh. The agent passes the arguments of mpirun's daemon (orted) to the launcher. The launcher passes the
arguments to the host, which runs the daemon:

    instance 0: launcher ── mpirun ── agent (one per instance)
                   │ └────────────────── │ ──┐  the command and its exit code
    instance 0: host ── orted ── ranks   └───┘
    instance 1: host ── orted ── ranks

The ranks find each other by MPI as usual. Every host and agent that connects to MASTER_PORT must prove that
it knows GROUP_TOKEN. This package is made for Open MPI 4.1, and otherwise needs only Python.
"""
