"""Checkpoints of PyTorch, for models of any size: each process saves its shards.

* `keeping` is the interface for training code;
* `state` gathers and restores the state of a run;
* `parts` writes and reads the files, `packing` restricts their types;
* `exchange` lets the processes of a Group agree.
"""
