// Numbers as people read them: shares in percent, their ± in percentage points, counts where the number of records is public.

// How many digits behind the point a ± deserves: one digit, two where it begins with 1.
function digitsOf(bar) {
  const size = Math.floor(Math.log10(bar));
  return -size + (bar / 10 ** size < 1.95 ? 1 : 0);
}

const between = (x, low, high) => Math.min(Math.max(x, low), high);

// A share and its ±, in percent: { value: "14.2%", bar: "0.6" }; bar is null where none is known.
export function share(value, bar) {
  const digits = bar ? between(digitsOf(100 * bar), 0, 6) : 1;
  return { value: `${(100 * value).toFixed(digits)}%`, bar: bar ? (100 * bar).toFixed(digits) : null };
}

export function points(width) {
  return `${Number((100 * width).toPrecision(2))}`;
}

// The same with its ±, in one line.
export function shareWithBar(value, bar) {
  const written = share(value, bar);
  return written.bar ? `${written.value} ± ${written.bar}` : written.value;
}

// How many records a share is, rounded as its ± deserves: { value: "2,840", bar: "120" }; null where nobody may know.
export function count(value, bar, records) {
  if (!records) return null;
  const width = bar ? bar * records.rows : 0;
  const step = width ? Math.max(1, 10 ** -digitsOf(width)) : Math.max(1, 10 ** (Math.floor(Math.log10(Math.max(value * records.rows, 1))) - 1));
  const rounded = (x) => (Math.round(x / step) * step).toLocaleString("en");
  return { value: rounded(value * records.rows), bar: width && !records.measured ? rounded(Math.max(width, 1)) : null };
}

export function whole(number) {
  return number.toLocaleString("en");
}

export function percent(part) {
  return `${Number((100 * part).toPrecision(2))}%`;
}

export function plural(number, one, many) {
  return `${whole(number)} ${number === 1 ? one : many}`;
}
