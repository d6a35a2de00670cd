"""The lemmas and theorems of "Scan and Snap"; `attnlab.theory` lists them."""
