/**
 * The words before "the same", "the class", "a string" and "a function" in Python's documentation, counted:
 * attnlab text classes builtin --queries 2 --next 2 --min-count 40 --out text.json
 */
const WORDS = `. the , ( ) a is ' of | to in and for if are be object an that as class or with by it not = this function
  value method string when name instance attribute which same namespace`.split(/\s+/)
const CLASSES = [
  { query: "the", next: "same", prior: 110,
    counts: "198 229 146 74 76 79 86 33 60 62 81 55 61 47 32 34 48 25 24 29 24 14 23 30 16 22 19 18 23 14 27 12 0 7 12 8 9 13 0 5" },
  { query: "the", next: "class", prior: 109,
    counts: "191 285 129 89 95 86 113 34 77 0 67 67 30 24 37 30 21 56 40 31 20 145 21 14 23 16 13 9 15 20 4 32 0 26 26 48 38 16 0 34" },
  { query: "a", next: "string", prior: 47,
    counts: "102 101 59 48 48 49 46 23 31 0 29 37 22 9 6 10 21 11 8 9 13 3 13 8 11 6 8 0 11 11 12 7 0 5 0 1 2 4 0 0" },
  { query: "a", next: "function", prior: 42,
    counts: "79 85 43 28 30 55 41 9 23 2 22 23 10 14 9 16 10 12 6 8 10 11 12 7 4 8 9 14 8 30 4 4 0 10 6 4 3 7 0 3" },
]

export const TEXT = {
  vocabulary: WORDS, normalize: true,
  classes: CLASSES.map(({ query, next, prior, counts }) => {
    const given = counts.split(" ").map((count, at) => [WORDS[at], Number(count)])
    return { query, next, prior, probs: Object.fromEntries(given.filter(([, count]) => count > 0)) }
  }),
}
