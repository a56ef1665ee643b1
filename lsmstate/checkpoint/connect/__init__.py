"""What pipelines are connected to: sources that can be replayed, and sinks in two phases."""
