"""One run over many nodes: the agent on each of them, the frames that it speaks, how it is reached, and who measures what."""
