"""Claims of polarisation, and of focus and dilution, as we know them, and questions of ours.

They are known to us from released code, abstracts and a reader's notes. `path` is about the flow in
one direction, `losses` about losses, weightings and models, `classes` about sequence classes, where
"Scan and Snap" is met, and `chain` about focus and dilution.
"""
