"""The same measurements on anybody's model: calls of attention, measured where they are made."""
