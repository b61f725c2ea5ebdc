"""One run: from options to stored results."""
