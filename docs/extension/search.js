// Results of the search: pages that explain come before pages that mention. The numbers below are
// Sphinx's own.
const LISTS = /^(architecture|changelog|contributing|errata|gallery|theorem-map)$/;
const GUIDES = /^(faq|measures|playground|results|sequence-classes|start|guides.*|notebooks.*|theory.*)$/;

var Scorer = {
  score: ([page, , , , found]) => found + (LISTS.test(page) ? -4 : GUIDES.test(page) ? 4 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
