"""All-reduce by hand: what a library does in a collective, written out in messages between two processes.

* `wire` sends and counts the messages;
* `ring`, `halving_doubling`, `hierarchical` and `torus` are the algorithms, each a function that sums a
  tensor over all processes in place, and leaves the same bits in each;
* `theory` says what each must send;
* `topology` names them, `choosing` finds one by its name, and `hook` makes DistributedDataParallel use it.
"""
