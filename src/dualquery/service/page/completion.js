// What could come next in a question: attributes, comparisons, values. Works on the public schema alone.

const NEEDS_NO_QUOTES = /^[^\s'"&|!()[\]{},=<>#≠≤≥∧∨¬]+$/;
const KEYWORDS = new Set(["and", "or", "not", "in", "is", "missing", "parity", "by"]);
const ORDERED = ["=", "!=", ">=", "<=", ">", "<", "in {"];
const UNORDERED = ["=", "!=", "in {"];
const MOST = 12;

export function quoted(text) {
  return NEEDS_NO_QUOTES.test(text) && !KEYWORDS.has(text.toLowerCase()) ? text : `'${text.replaceAll("'", "''")}'`;
}

// The word under the cursor (perhaps half written, perhaps quoted), and the text before it.
function split(before) {
  const word = before.match(/(?:'(?:[^']|'')*|"(?:[^"]|"")*|[^\s'"&|!()[\]{},=<>#]*)$/)[0];
  return { word: word.replace(/^['"]/, ""), start: before.length - word.length, rest: before.slice(0, before.length - word.length) };
}

const NAME = String.raw`('(?:[^']|'')*'|"(?:[^"]|"")*"|[^\s'"&|!()[\]{},=<>#]+)`;
const COMPARED = new RegExp(`${NAME}\\s*(?:!=|<=|>=|==|=|<|>|≠|≤|≥)\\s*$`);
const LISTED = new RegExp(`${NAME}\\s+(?:not\\s+)?in\\s*\\{[^}]*$`, "i");
const NAMED = new RegExp(`(?:^|[&|(!,]|\\b(?:and|or|not)\\s)\\s*${NAME}\\s+$`, "i");

function bare(name) {
  const quote = name[0];
  return quote === "'" || quote === '"' ? name.slice(1, -1).replaceAll(quote + quote, quote) : name;
}

// Suggestions for a text and the place of the cursor: { start, end, options: [{ text, label }] }.
export function suggestions(attributes, text, cursor) {
  const { word, start, rest } = split(text.slice(0, cursor));
  const known = new Map(attributes.map((each) => [each.name, each]));
  const found = (names) => {
    const wanted = word.toLowerCase();
    const first = names.filter((each) => each.label.toLowerCase().startsWith(wanted));
    const later = names.filter((each) => !first.includes(each) && each.label.toLowerCase().includes(wanted));
    const options = [...first, ...later].filter((each) => each.text !== word).slice(0, MOST);
    return { start, end: cursor, options };
  };
  const valued = rest.match(COMPARED) || rest.match(LISTED);
  if (valued && known.has(bare(valued[1]))) {
    const values = known.get(bare(valued[1])).values;
    return found(values.map((value) => ({ text: `${quoted(value)} `, label: value })));
  }
  const named = rest.match(NAMED);
  if (named && known.has(bare(named[1]))) {
    const attribute = known.get(bare(named[1]));
    const signs = attribute.kind === "categorical" ? UNORDERED : ORDERED;
    return found([...signs.map((sign) => ({ text: `${sign} `, label: sign })), { text: "by ", label: "by" }]);
  }
  return found(
    attributes.map((each) => ({
      text: each.kind === "items" ? `${quoted(each.name)}[${each.first}] ` : `${quoted(each.name)} `,
      label: each.name,
    })),
  );
}

// Ties a text field to a list: arrows choose, Tab or Enter takes, Escape closes.
export function attach(field, list, attributesNow) {
  let shown = null;
  let chosen = -1;
  const close = () => {
    shown = null;
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const take = (index) => {
    const { start, end, options } = shown;
    field.setRangeText(options[index].text, start, end, "end");
    close();
    field.focus();
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const mark = (index) => {
    chosen = index;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === index)));
    if (index >= 0) {
      field.setAttribute("aria-activedescendant", list.children[index].id);
      list.children[index].scrollIntoView({ block: "nearest" });
    }
  };
  const show = () => {
    const next = suggestions(attributesNow(), field.value, field.selectionStart);
    if (!next.options.length || document.activeElement !== field) return close();
    shown = next;
    list.replaceChildren(
      ...next.options.map((option, i) => {
        const item = document.createElement("li");
        item.id = `suggestion-${i}`;
        item.setAttribute("role", "option");
        item.textContent = option.label;
        item.addEventListener("pointerdown", (event) => {
          event.preventDefault();
          take(i);
        });
        return item;
      }),
    );
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    return mark(-1);
  };
  field.addEventListener("input", show);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (!shown) return;
    const last = shown.options.length - 1;
    if (event.key === "ArrowDown") mark(chosen === last ? 0 : chosen + 1);
    else if (event.key === "ArrowUp") mark(chosen <= 0 ? last : chosen - 1);
    else if (event.key === "Tab" && !event.shiftKey) take(Math.max(chosen, 0));
    else if (event.key === "Enter" && chosen >= 0 && !event.ctrlKey) take(chosen);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
}
