"""Scan and Snap (Tian, Wang, Chen and Du, NeurIPS 2023)."""
