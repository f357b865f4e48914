"""Input that someone damaged, or made to do damage: one line, or a right answer."""
