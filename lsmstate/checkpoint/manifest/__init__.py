"""Manifests of checkpoints: what is told of one, where it lies, and which one a job goes on from."""
