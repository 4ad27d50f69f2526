"""Classifies short texts, such as questions, with a bag-of-embeddings model.

* `prepare_data` writes a real dataset to storage: 5,380 questions with the kinds of their answers;
* `train` trains on such a dataset, as one process or as a group;
* `predict` classifies one text with a trained model.
"""
