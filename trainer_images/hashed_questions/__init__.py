"""Logistic regression over hashed words and pairs: workers get only the weights that their questions use."""
