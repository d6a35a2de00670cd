"""Papers, a folder each; `attnlab.shelf` finds them by their paper.yaml."""
