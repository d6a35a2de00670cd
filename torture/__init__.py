"""A hostile campaign against attnlab: `python -m torture`, or `./lab torture`.

Each file is a kind of hostility: `parsers` (fuzzed files), `checkpoints` (models of strangers, and
saved observations that were changed), `damage` (flipped bytes of what was kept), `kills` (signals
at random moments), `disks` (full, read-only, files that go away, clocks that jump), `extremes`
(rates and shapes against a brute-force implementation), `outputs` (links and foreign files in
output folders), `theories` (own theories that answer badly), `signals` (Ctrl-C and SIGTERM on every
verb) and `twins` (trainings with an observer and without).
"""
