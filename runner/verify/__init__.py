"""Whether an installation performs as it should, and what explains it where it does not."""
