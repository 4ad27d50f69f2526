"""PyTorch on the questions: data parallel, by torchrun or without, elastic or not."""
