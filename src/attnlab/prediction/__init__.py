"""What theories say of a run, as the dataset that simulating it would give."""
