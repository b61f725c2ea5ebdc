"""The source and target of a built image: a registry, or a folder that several machines see."""
