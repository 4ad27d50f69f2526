"""Data parallel with a parameter server: rank 0 holds the weights, the other ranks send it gradients.

* `synchrony` names the ways in which the server waits for its workers, with a rule for each;
* `server` applies gradients by a rule, and computes their staleness, without communication;
* `transport` sends weights and gradients between processes;
* `running` has the loops of the server and of a worker.
"""
