"""The catalog, as data: images with their pins, frameworks, workloads. Reads and validates files; changes nothing."""
