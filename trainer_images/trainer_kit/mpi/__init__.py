"""Runs an MPI program over all instances of a group, without ssh: `python -m trainer_kit.mpi COMMAND…`.

Every instance runs that. Instance 0 is the launcher: it waits for the others at MASTER_PORT and runs
`mpirun COMMAND…`. Where mpirun would start its daemon on a host by ssh, it starts our agent, which hands
the daemon's arguments to the launcher, and the launcher to that host's instance, which runs the daemon:

    instance 0: launcher ── mpirun ── agent (one for each instance)
                   │ └────────────────── │ ──┐  what to run, and how it ended
    instance 0: host ── orted ── ranks   └───┘
    instance 1: host ── orted ── ranks

Of all this the ranks know nothing: they find each other by MPI. Who connects must know GROUP_TOKEN.
Made for Open MPI 4.1; needs nothing but Python besides.
"""
