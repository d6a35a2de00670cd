"""Figures: data() then draw(), one file each."""
