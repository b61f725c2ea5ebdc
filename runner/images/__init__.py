"""The second use: build, publish, lock and check the images of the catalog."""
