"""How a node is reached: a module each, chosen by the word before the colon of --nodes."""
