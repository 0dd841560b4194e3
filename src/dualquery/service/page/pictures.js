// Pictures: a share with its ±, a bar for each cell, and the budget.

import { percent } from "./numbers.js";

const SPACE = "http://www.w3.org/2000/svg";

export function draw(tag, attributes, ...children) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

export function picture(width, height, words, attributes, ...children) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words, ...attributes }, ...children);
}

const inside = (x) => Math.min(Math.max(x, 0), 1);

const STEPS = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2];

// One share on as much of the scale as it needs: the ± as a thick line, what is guaranteed as a pale band.
export function scale(value, bar, bound, words) {
  const [wide, left] = [560, 24];
  const reach = Math.max(1.2 * (bound ?? 0), 2.5 * (bar ?? 0), 0.001);
  const step = STEPS.find((each) => (inside(value + reach) - inside(value - reach)) / each <= 6) ?? 0.2;
  const [first, last] = [Math.floor(inside(value - reach) / step + 1e-9), Math.ceil(inside(value + reach) / step - 1e-9)];
  const at = (x) => left + ((Math.min(Math.max(x, first * step), last * step) - first * step) / ((last - first) * step)) * (wide - 2 * left);
  const parts = [draw("line", { class: "axis", x1: at(0), x2: at(1), y1: 26, y2: 26 })];
  for (let k = first; k <= last; k += 1) {
    const x = at(k * step);
    parts.push(draw("line", { class: "axis", x1: x, x2: x, y1: 26, y2: 31 }));
    parts.push(draw("text", { class: "soft", x, y: 46, "text-anchor": "middle" }, `${Number((100 * k * step).toPrecision(4))}%`));
  }
  if (bound !== null) parts.unshift(draw("rect", { class: "guaranteed", x: at(value - bound), y: 8, width: Math.max(at(value + bound) - at(value - bound), 1), height: 18 }));
  if (bar) parts.push(draw("line", { class: "plus-minus", x1: at(value - bar), x2: at(value + bar), y1: 17, y2: 17 }));
  parts.push(draw("circle", { class: "point", cx: at(value), cy: 17, r: 5 }));
  return picture(wide, 50, words, { class: "scale" }, ...parts);
}

// The share of one cell as a bar, with its ± as a line across its end; `most` is the end of the scale.
export function cellBar(value, bar, most, words) {
  const [wide, high] = [120, 12];
  const at = (x) => Math.min(Math.max(x / most, 0), 1) * wide;
  const parts = [draw("rect", { class: "bar", x: 0, y: 2, width: Math.max(at(value), 0.5), height: high - 4 })];
  if (bar) parts.push(draw("line", { class: "whisker", x1: at(value - bar), x2: at(value + bar), y1: high / 2, y2: high / 2 }));
  return picture(wide, high, words, { class: "cell-bar", preserveAspectRatio: "none" }, ...parts);
}

// The budget: what the release took, what questions took, what is left.
export function budgetBar(parts) {
  const wide = 600;
  let x = 0;
  const pieces = parts.map(({ name, words, share }) => {
    const width = Math.max(share * wide, 0);
    const piece = draw("rect", { class: `part-${name}`, x, y: 0, width, height: 18 });
    piece.append(draw("title", {}, `${words}: ${percent(share)}`));
    x += width;
    return piece;
  });
  const words = parts.map(({ words, share }) => `${words} ${percent(share)}`).join(", ");
  return picture(wide, 18, words, { class: "budget-bar", preserveAspectRatio: "none" }, ...pieces);
}
