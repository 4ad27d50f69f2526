"""All-reduce algorithms, implemented with messages between two processes instead of a library's collective.

* `wire` sends and counts the messages;
* `star`, `tree`, `ring`, `halving_doubling`, `binary_blocks`, `hierarchical` and `torus` are the algorithms.
  Each sums a tensor over all processes in place, with identical results in all of them;
* `theory` computes the traffic of each;
* `topology` names the algorithms, `choosing` finds one by name, and `hook` makes DistributedDataParallel use
  it.
"""
