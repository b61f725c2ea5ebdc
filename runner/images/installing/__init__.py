"""How packages are installed, as the site's settings of pip say. In the standard library only: it installs what the runner needs."""
