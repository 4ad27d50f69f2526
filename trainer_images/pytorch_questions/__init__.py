"""PyTorch on the questions: data parallel, with or without torchrun, elastic or not."""
