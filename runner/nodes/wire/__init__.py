"""The wire between a driver and an agent: frames, messages, finished repeats, and the versions of both."""
