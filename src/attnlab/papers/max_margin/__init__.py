"""Attention as a support vector machine (Ataee Tarzanagh et al., 2023), as we know it."""
