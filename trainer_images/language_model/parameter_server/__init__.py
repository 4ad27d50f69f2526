"""Data parallel with parameter servers: some ranks hold shards of the weights, and others send gradients.

* `roles` divides the ranks into servers, standbys and workers;
* `synchrony` names the ways in which servers wait for workers, with a rule for each;
* `server` applies gradients by a rule, and computes their staleness, without communication;
* `shards` divides the weights and the optimizer's state, and `flat` makes vectors of a model's tensors;
* `messages` lists the messages between processes, and `transport` sends them;
* `replica` is a server or a standby, `leader` orders the gradients for all servers, and `worker` sends
  gradients and collects weights. These three handle messages without a network, so a test can simulate
  the loss of any process between any two messages;
* `running` has the loops of servers, standbys and workers.
"""
