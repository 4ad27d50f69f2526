"""Data parallel with a parameter server: rank 0 holds the weights, the others send it gradients.

* `synchrony` names the ways in which the server may wait for its workers, and the rule of each;
* `server` applies gradients by a rule, and knows how stale each is; it sends nothing;
* `transport` carries weights and gradients between processes;
* `running` is the two programs, the server's and a worker's.
"""
