"""Linear attention learns in-context regression (Zhang, Singh, Latham and Saxe, ICML 2025)."""
