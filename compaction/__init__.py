"""Decides and merges: pure functions over runs, without files or threads."""
