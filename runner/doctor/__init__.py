"""What GPU cells need of a machine, looked at piece by piece."""
