"""The coordinator of checkpoints: when one begins, who has answered, and how it ends."""
