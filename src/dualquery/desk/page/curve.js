// ε against the error to expect, on two logarithmic scales.

import { draw, picture } from "./pictures.js";

const [WIDE, HIGH, LEFT, BELOW, TOP] = [560, 220, 64, 34, 12];

// The error at any ε between the points of a curve, along straight lines between logarithms.
export function errorAt(points, epsilon) {
  const known = points.filter((each) => each.mean > 0);
  if (!known.length) return null;
  const x = Math.log(epsilon);
  const after = known.findIndex((each) => each.epsilon >= epsilon);
  if (after <= 0) return known.at(after === 0 ? 0 : -1).mean;
  const [a, b] = [known[after - 1], known[after]];
  const part = (x - Math.log(a.epsilon)) / (Math.log(b.epsilon) - Math.log(a.epsilon));
  return Math.exp((1 - part) * Math.log(a.mean) + part * Math.log(b.mean));
}

const written = (error) => `${Number((100 * error).toPrecision(2))}%`;

export function curve(points, epsilon) {
  const known = points.filter((each) => each.mean > 0);
  if (known.length < 2) return document.createTextNode("");
  const ends = (values) => [Math.min(...values), Math.max(...values)].map(Math.log10);
  const [first, last] = ends([...known.map((each) => each.epsilon), epsilon]);
  const [least, most] = ends(known.map((each) => each.mean));
  const x = (value) => LEFT + ((Math.log10(value) - first) / (last - first)) * (WIDE - LEFT - 16);
  const y = (value) => HIGH - BELOW - ((Math.log10(value) - least) / Math.max(most - least, 1e-9)) * (HIGH - BELOW - TOP);
  const parts = [];
  for (const each of known) {
    parts.push(draw("line", { class: "grid", x1: x(each.epsilon), x2: x(each.epsilon), y1: TOP, y2: HIGH - BELOW }));
    parts.push(draw("text", { class: "soft", x: x(each.epsilon), y: HIGH - 16, "text-anchor": "middle" }, String(Number(each.epsilon.toPrecision(3)))));
  }
  for (const value of [known[0].mean, Math.sqrt(known[0].mean * known.at(-1).mean), known.at(-1).mean]) {
    parts.push(draw("line", { class: "grid", x1: LEFT, x2: WIDE - 16, y1: y(value), y2: y(value) }));
    parts.push(draw("text", { class: "soft", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, written(value)));
  }
  parts.push(draw("polyline", { class: "line", points: known.map((each) => `${x(each.epsilon)},${y(each.mean)}`).join(" ") }));
  const error = errorAt(points, epsilon);
  parts.push(draw("line", { class: "here", x1: x(epsilon), x2: x(epsilon), y1: TOP, y2: HIGH - BELOW }));
  parts.push(draw("circle", { class: "point", cx: x(epsilon), cy: y(error), r: 6 }));
  parts.push(draw("text", { class: "soft", x: WIDE / 2, y: HIGH - 2, "text-anchor": "middle" }, "ε"));
  return picture(WIDE, HIGH, `Predicted error by ε; at ε = ${epsilon} it is ${written(error)}`, { class: "curve" }, ...parts);
}
