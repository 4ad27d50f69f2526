"""Decides how to train a transformer on given devices: pure formulas and a search, without the service.

`model` and `model_config` describe the model, `cluster` and `network_file` the devices and their network.
`costs` computes memory and time of one layout, `search` tries layouts and decides, `all_reduce` compares ways
to sum gradients, and `reasons` explains the decision.
"""
