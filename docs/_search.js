/* Rank the results of the site's search.
 *
 * Sphinx appends this file to its own script (`html_search_scorer`). By itself it shows only pages that have every word
 * of a query, and gives all of them the same score. Here a page needs half of the words, and counts more if it has the
 * rare ones, and if it has them in its title, in the words of search.toml or in a heading. The result leads to the
 * section whose heading has most of the query, if that is half of it.
 */
const WORTH = { title: 4, keyword: 4, heading: 2.5, text: 1 };

/* The score of a page that has all words in its title. A word of search.toml that is the whole query has 100. */
const BEST = 40;

/* Pages for those who change the code, and the programs that other pages show or link to, come after all others. Of two pages with
 * the same words, the guide comes before the reference. */
const LAST = /^(design|examples\/pages|examples\/places|examples\/servers)\/|^reference\/internal$/;
const LOOKED_UP = /^(reference|examples)\/|^(glossary|guarantees)$/;

Scorer.score = ([page, , , , score, , kind]) => {
  if (LAST.test(page)) return score - 100;
  return kind === SearchResultKind.text && LOOKED_UP.test(page) ? 0.8 * score : score;
};

Search.performTermsSearch = (words) => {
  const { docnames, filenames, titles, alltitles, terms, titleterms } = Search._index;
  const stem = (text) => splitQuery(text.toLowerCase()).map((word) => new Stemmer().stemWord(word));
  const lists = [
    [WORTH.text, terms],
    [WORTH.heading, titleterms],
    [WORTH.keyword, {}],
    [WORTH.title, {}],
  ];
  const add = (list, text, page) => stem(text).forEach((word) => (list[word] ??= []).push(page));
  for (const [entry, places] of Object.entries(Search._index.indexentries))
    for (const [page, , isMain] of places) if (isMain) add(lists[2][1], entry, page);
  titles.forEach((title, page) => add(lists[3][1], title, page));

  const scores = new Map();
  const found = new Map();
  const rarities = new Map();
  let all = 0;
  for (const word of words) {
    const worth = new Map();
    for (const [value, list] of lists)
      for (const page of [Object.hasOwn(list, word) ? list[word] : []].flat())
        worth.set(page, Math.max(worth.get(page) ?? 0, value));
    if (!worth.size && word.length > 2)
      for (const [term, pages] of Object.entries(terms))
        if (term.includes(word)) [pages].flat().forEach((page) => worth.set(page, WORTH.text / 2));
    const rarity = Math.log(1 + docnames.length / Math.max(1, worth.size));
    rarities.set(word, rarity);
    all += rarity;
    for (const [page, value] of worth) {
      scores.set(page, (scores.get(page) ?? 0) + rarity * value);
      found.set(page, (found.get(page) ?? 0) + 1);
    }
  }

  const sections = new Map();
  for (const [heading, places] of Object.entries(alltitles)) {
    const shared = [...new Set(stem(heading))].filter((word) => words.has(word));
    if (!shared.length || shared.length < words.size / 2) continue;
    const worth = shared.reduce((sum, word) => sum + rarities.get(word), 0);
    for (const [page, id] of places)
      if (worth > (sections.get(page)?.worth ?? 0)) sections.set(page, { worth, id, heading });
  }
  return [...scores]
    .filter(([page]) => found.get(page) >= words.size / 2)
    .map(([page, score]) => {
      const { id, heading } = sections.get(page) ?? {};
      const [title, anchor] = id ? [`${titles[page]} > ${heading}`, `#${id}`] : [titles[page], ""];
      const worth = (BEST * score) / (WORTH.title * all);
      return [docnames[page], title, anchor, null, worth, filenames[page], SearchResultKind.text];
    });
};
