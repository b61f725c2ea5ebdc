"""PaddlePaddle 3."""
