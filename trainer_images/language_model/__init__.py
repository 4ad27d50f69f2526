"""A small GPT-style language model, trained by any parallelism that its parameters name.

* `prepare_data` puts a real corpus into storage, read by `data`;
* `layout` says what may be asked for and refuses what cannot be, `theory` what each choice costs;
* `model` is the model, `train` the one training loop, and `assembly` fits the two to a layout;
* each strategy is a module: `data_parallel`, `zero`, `pipeline`, `tensor`, and `memory` for what saves
  memory in all of them, on the `mesh` of processes;
* `all_reduce` is collectives written out in messages, and `parameter_server` data parallel without them,
  which `parameter_server_loop` trains by; `batch_size` says how large each step is;
* `counting` counts the bytes that are sent and held.
"""
