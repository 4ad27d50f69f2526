"""The tiny model that every strategy trains."""

STEPS = 20
TINY = {"LAYERS": "4", "HEADS": "4", "WIDTH": "32", "CONTEXT": "32", "BATCH_SIZE": "16", "LR": "0.003"}
