"""Claims of JoMA as we have them from memory, numbered by ourselves, and questions of ours."""
