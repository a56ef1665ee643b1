"""The embedded runtime: pipelines of sources, operators and sinks in threads, checkpointed and brought back."""
