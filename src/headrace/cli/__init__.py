"""What can be typed at a terminal? The composition root: the only room that knows all the others."""
