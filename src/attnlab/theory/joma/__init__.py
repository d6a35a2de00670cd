"""JoMA as formulas, one file for each of its nouns.

Tian, Wang, Zhang, Chen and Du, "JoMA: Demystifying Multilayer Transformers via Joint Dynamics of
MLP and Attention" (ICLR 2024). Its claims are known to us by re-derivation and by the numbers that
its authors released, not from its printed text: they are stated as we read them, numbered by
ourselves ("claim 2"), and no equation is cited. docs/theory-joma.md has the derivations, and says
what is exact, what is a heuristic and what is ours.
"""
