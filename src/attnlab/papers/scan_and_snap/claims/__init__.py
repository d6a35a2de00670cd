"""The claims of "Scan and Snap": the paper, its poster and its slides, by what they are about."""
