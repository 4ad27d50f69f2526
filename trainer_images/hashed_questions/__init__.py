"""Logistic regression over hashed words and pairs: workers exchange only the weights that they touch."""
