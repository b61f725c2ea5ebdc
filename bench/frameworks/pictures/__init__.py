"""Facts on networks on pictures that several frameworks share."""
