"""A paper of your own: how attention starts to move, before the decoder has learnt anything."""
