"""Polarisation (Varre, Rofin and Flammarion, 2026), as we know it.

With focus and dilution (Chen, Lin, Xu and Luo, ICML 2026), as we know it.
"""
