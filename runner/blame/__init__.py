"""Which step between two images holds a change of step time: the images between them, and the judgement of one run over all of them."""
