"""JoMA (Tian, Wang, Zhang, Chen and Du, ICLR 2024), as we know it."""
