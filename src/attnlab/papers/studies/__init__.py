"""Ours: the decoder that SGD trains, and studies of what the papers leave open."""
