"""Decides how to train a transformer on given devices: pure formulas and a search, without the service.

`model` and `model_config` describe the model, `cluster` the devices and their network, `costs` computes
memory and time of one layout, `search` tries all of them, and `reasons` explains the decision.
"""
