"""Stubs generated from `proto/` by `scripts/generate-stubs`: never edited by hand."""
