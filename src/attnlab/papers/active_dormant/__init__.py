"""Active and dormant attention heads (Guo et al., 2024), as we know it."""
