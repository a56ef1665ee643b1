"""What several tests share: simulated disks, models, builders."""
