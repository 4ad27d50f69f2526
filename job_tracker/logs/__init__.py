"""Logs of ranks as records with times: written within a bound, read from anywhere, kept in storage."""
