"""How a two-layer attention model finds a hidden tree of positions (Nichani, Damian and Lee)."""
