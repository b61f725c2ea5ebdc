"""Steps that were compiled for GPUs that are not here: for which GPUs, what the compiled program says, its record and its page."""
