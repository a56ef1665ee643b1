"""Which files make up a state at which epoch: names, versions, manifests. FORMAT.md describes the documents."""
