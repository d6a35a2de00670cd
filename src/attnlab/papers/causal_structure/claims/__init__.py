"""Claims, by what they are about: the first gradient, the two stages, the full model."""
