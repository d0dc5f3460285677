// Finds pages by all words that are typed: in titles first, then headings, then text. The index is a script, loaded on
// first use, so that the search also works where the site is opened from a disk.
const script = document.currentScript;
const up = script.dataset.up;
let pages = null;

async function index() {
  pages ??= new Promise((resolve, reject) => {
    const loaded = document.createElement("script");
    loaded.src = up + "search-index.js";
    loaded.onload = () => resolve(window.slackwaterPages);
    loaded.onerror = reject;
    document.head.append(loaded);
  });
  return pages;
}

function score(page, words) {
  let sum = 0;
  for (const word of words) {
    if (page.title.toLowerCase().includes(word)) sum += 9;
    else if (page.headings.toLowerCase().includes(word)) sum += 3;
    else if (page.text.toLowerCase().includes(word)) sum += 1;
    else return 0;
  }
  return sum;
}

async function search(text) {
  const list = document.getElementById("found");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length === 0 ? [] : (await index())
    .map((page) => [score(page, words), page])
    .filter(([points]) => points > 0)
    .sort((a, b) => b[0] - a[0])
    .slice(0, 8);
  list.replaceChildren(...found.map(([, page]) => {
    const link = document.createElement("a");
    link.href = up + page.place;
    link.textContent = page.title;
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
}

document.getElementById("search").addEventListener("input", (event) => search(event.target.value));
document.querySelector("form[role=search]").addEventListener("submit", (event) => event.preventDefault());
