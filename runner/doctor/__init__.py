"""The needs of GPU cells, checked on this machine piece by piece."""
