"""Benchmarks: `./lab bench NAME`. Each prints what it measured and what it was measured against."""
