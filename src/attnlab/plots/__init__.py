"""Drawing labelled results with matplotlib."""
