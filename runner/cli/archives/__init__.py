"""The commands of archives: what one machine measured, for another."""
