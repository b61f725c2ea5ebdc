"""The command about ladders of images, and its answer as an object."""
