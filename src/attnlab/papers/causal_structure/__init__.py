"""Causal structure: two layers of attention find a hidden tree of positions (Nichani et al.)."""
