"""PyTorch (torch), eager by default."""
