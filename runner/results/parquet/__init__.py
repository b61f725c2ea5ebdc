"""The store's tables as Parquet: their columns, what a file from a stranger holds before it is read, and how files are put together."""
