"""A small GPT-style language model, trained with any kind of parallelism.

* `prepare_data` writes a real corpus to storage, and `data` reads it;
* `layout` defines the parameters and refuses invalid combinations; `theory` computes the costs of a layout;
* `model` is the model, `train` the training loop, and `assembly` builds both for a layout;
* `data_parallel`, `zero`, `pipeline` and `tensor` divide the work among the processes of the `mesh`, and
  `memory` saves memory in each process;
* `pipedream` is an asynchronous pipeline; `local_weights` and `gossip` average weights instead of gradients;
* `all_reduce` implements all-reduce with messages between two processes;
* `parameter_server` is data parallelism without collectives: its workers run `parameter_server_loop`, and its
  servers run `serving_loop`;
* `batch_size` computes the size of each step, and `counting` measures traffic and memory.
"""
