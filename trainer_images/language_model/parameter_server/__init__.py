"""Data parallel with a parameter server: rank 0 holds the weights, the others send it gradients.

* `synchrony` names the ways in which the server may wait for its workers, and the rule that each stands for;
* `server` applies gradients by a rule, and knows how stale each is; it speaks to nobody;
* `post` carries weights and gradients between processes;
* `running` is the two programs: of the server, and of a worker.
"""
