"""The answers as a page, as figures and as text."""
