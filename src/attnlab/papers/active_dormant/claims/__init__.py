"""Claims of active and dormant heads, as we know them, and questions of ours.

`head` is about the reparametrised head, by formulas and its flow; `transformer` about one layer on
Bigram-Backcopy and `layers` about three, from numbers on file.
"""
