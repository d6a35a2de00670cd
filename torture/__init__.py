"""A hostile campaign against attnlab: `python -m torture`, or `./lab torture`.

Each file is a kind of hostility: `parsers` (fuzzed files), `damage` (flipped bytes of what was
kept), `kills` (signals at random moments), `disks` (full, read-only, files that go away, clocks
that jump), `extremes` (rates and shapes against a brute-force implementation) and `twins`
(trainings with an observer and without).
"""
