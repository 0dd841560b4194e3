// Pictures: an answer with its two error bars, a table as bars or as a heat map, the budget as a bar.

const SPACE = "http://www.w3.org/2000/svg";

function draw(tag, attributes, ...children) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

function picture(width, height, words, ...children) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words }, ...children);
}

// A number with as many digits as its error deserves.
export function written(value, error) {
  if (!error) return value.toFixed(4);
  const digits = Math.min(Math.max(-Math.floor(Math.log10(error)) + (String(error / 10 ** Math.floor(Math.log10(error)))[0] === "1" ? 1 : 0), 0), 8);
  return `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}

export function percent(share) {
  return `${Number((100 * share).toPrecision(2))}%`;
}

const inside = (x) => Math.min(Math.max(x, 0), 1);

// One value between 0 and 1: the typical error as a thick bar, the guaranteed bound as a thin one.
export function errorBars(value, typical, bound, confidence) {
  const wide = 460;
  const reach = Math.max(3 * (typical ?? 0), 1.3 * (bound ?? 0), 0.02);
  const [low, high] = [inside(value - reach), inside(value + reach)];
  const at = (x) => 20 + ((inside(x) - low) / (high - low || 1)) * (wide - 40);
  const parts = [draw("line", { class: "axis", x1: 20, x2: wide - 20, y1: 40, y2: 40 })];
  if (bound !== null) parts.push(draw("line", { class: "bound", x1: at(value - bound), x2: at(value + bound), y1: 20, y2: 20 }));
  if (typical) parts.push(draw("line", { class: "typical", x1: at(value - typical), x2: at(value + typical), y1: 20, y2: 20 }));
  parts.push(draw("circle", { class: "point", cx: at(value), cy: 20, r: 5 }));
  parts.push(draw("text", { x: 20, y: 56 }, low.toFixed(3)), draw("text", { x: wide - 20, y: 56, "text-anchor": "end" }, high.toFixed(3)));
  const sure = bound === null ? "no guarantee" : `off by at most ${bound.toPrecision(2)} with ${Math.round(100 * confidence)}% confidence`;
  return picture(wide, 60, `${written(value, typical)}; ${sure}`, ...parts);
}

// A table over one attribute: bars with their typical errors.
export function bars(labels, values, typical) {
  const [row, left, wide] = [24, 170, 520];
  const most = Math.max(...values, 1e-9);
  const at = (x) => left + (inside(x) / most) * (wide - left - 60);
  const parts = values.flatMap((value, i) => {
    const y = i * row;
    const error = typical[i] ?? 0;
    return [
      draw("text", { x: left - 8, y: y + 16, "text-anchor": "end" }, shortened(labels[i].join(", "), 24)),
      draw("rect", { class: "bar", x: left, y: y + 4, width: Math.max(at(value) - left, 0.5), height: row - 8 }),
      draw("line", { class: "bound", x1: at(value - error), x2: Math.min(at(value + error), wide), y1: y + row / 2, y2: y + row / 2 }),
      draw("text", { x: Math.min(at(value + error), wide - 60) + 6, y: y + 16 }, value.toFixed(4)),
    ];
  });
  return picture(wide, row * values.length, `bars of ${values.length} values`, ...parts);
}

// A table over two attributes: a heat map, each cell with its number.
export function heatMap(rows, columns, values) {
  const [side, high, left, top] = [64, 30, 150, 26];
  const most = Math.max(...values, 1e-9);
  const parts = columns.map((name, j) => draw("text", { x: left + side * (j + 0.5), y: 16, "text-anchor": "middle" }, shortened(name, 9)));
  rows.forEach((name, i) => {
    parts.push(draw("text", { x: left - 8, y: top + high * i + 20, "text-anchor": "end" }, shortened(name, 20)));
    columns.forEach((_, j) => {
      const value = values[i * columns.length + j];
      const cell = draw("rect", { class: "cell", x: left + side * j + 1, y: top + high * i + 1, width: side - 2, height: high - 2, "fill-opacity": 0.06 + 0.6 * (value / most) });
      cell.append(draw("title", {}, `${name}, ${columns[j]}: ${value}`));
      parts.push(cell, draw("text", { x: left + side * (j + 0.5), y: top + high * i + 20, "text-anchor": "middle" }, value.toFixed(3)));
    });
  });
  return picture(left + side * columns.length, top + high * rows.length, `heat map of ${values.length} cells`, ...parts);
}

// The budget: what the release took, what questions took, what is left.
export function budgetBar(parts) {
  const wide = 600;
  let x = 0;
  const pieces = parts.map(({ name, share }) => {
    const width = Math.max(share * wide, 0);
    const piece = draw("rect", { class: `part-${name}`, x, y: 0, width, height: 22 });
    piece.append(draw("title", {}, `${name}: ${percent(share)}`));
    x += width;
    return piece;
  });
  return picture(wide, 22, parts.map(({ name, share }) => `${name} ${percent(share)}`).join(", "), ...pieces);
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
