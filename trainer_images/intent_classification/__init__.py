"""Sorts short texts, such as questions, into classes with a bag-of-embeddings model.

* `prepare_data` puts a real data set into storage: 5,380 questions and what they ask for;
* `train` trains on such a data set, as one process or as a group;
* `predict` asks a trained model about one text.
"""
