"""What a Parquet file from a stranger holds, found before it is read."""
