"""Where a built image comes from and goes to: a registry, or a folder that several machines see."""
