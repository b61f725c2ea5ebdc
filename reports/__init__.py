"""Renders stored runs as one HTML file; looks at no live run, and of the runner at nothing but its results."""
