"""JoMA as formulas, one file for each of its nouns.

Tian, Wang, Zhang, Chen and Du, "JoMA: Demystifying Multilayer Transformers via Joint Dynamics of
MLP and Attention" (ICLR 2024). We have its statements from memory, numbered by ourselves ("claim
2"), and cite no equation. What is re-derived is derived in docs/theory-joma.md, which also says
what is exact, what is a heuristic and what is ours.
"""
