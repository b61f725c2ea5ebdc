"""Numbers to hold a measurement against: those of the founding documents, and those measured with this project."""
