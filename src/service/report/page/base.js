// Elements, formats and the data.

const data = JSON.parse(document.getElementById("data").textContent);
const problems = data.problems;
const families = data.families;

/// An element. Attributes that begin with "on" are listeners; null and false leave one out.
function make(space, tag, attributes, children) {
  const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}
const html = (tag, attributes, ...children) => make(null, tag, attributes, children);
const svg = (tag, attributes, ...children) =>
  make("http://www.w3.org/2000/svg", tag, attributes, children);

/// A number with so many significant digits, without an exponent.
function digits(value, count = 3) {
  if (value === 0) return "0";
  const decimals = Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(decimals, 8));
}
function formatUs(us) {
  if (!(us > 0)) return "–";
  if (us < 1) return digits(1000 * us) + "\u00a0ns";
  if (us < 1000) return digits(us, us < 10 ? 3 : 4) + "\u00a0µs";
  return digits(us / 1000, 4) + "\u00a0ms";
}
/// A number on an axis: as short as it is exact.
const tickText = (value) => String(Number(value.toPrecision(4)));
const formatShare = (share) => digits(100 * share, share < 0.1 ? 2 : share < 1 ? 3 : 4) + "\u00a0%";
/// The logarithm of a ratio as a percentage.
const percentOf = (log) => 100 * Math.expm1(log);
function formatPercent(percent, signed = false) {
  const size = Math.abs(percent);
  const text = size < 0.05 ? "0" : size < 10 ? size.toFixed(1) : size.toFixed(0);
  const sign = percent < 0 && text !== "0" ? "−" : signed && text !== "0" ? "+" : "";
  return sign + text + "\u00a0%";
}
function formatSi(value, unit) {
  for (const [scale, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= scale) return digits(value / scale) + "\u00a0" + prefix + unit;
  }
  return digits(value) + "\u00a0" + unit;
}
const formatSeconds = (seconds) =>
  seconds < 120 ? digits(seconds, 3) + "\u00a0s" : digits(seconds / 60, 3) + "\u00a0min";
const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;
const configurationText = (configuration) =>
  Object.entries(configuration).map(([name, value]) => `${name}=${value}`).join(" ");
const shortTemplate = (name) => name.slice(name.indexOf("/") + 1);

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/// A problem's text, the operation set off from its sizes.
function problemText(text) {
  const space = text.indexOf(" ");
  if (space < 0) return html("span", {class: "problem"}, html("b", {}, text));
  return html("span", {class: "problem"}, html("b", {}, text.slice(0, space)), text.slice(space));
}

// Numbers within texts are compared as numbers, so that k=2048 comes before k=14336.
const naturally = new Intl.Collator("en", {numeric: true}).compare;

/// Returns the words for a record's decision.
const verdictOf = (problem) => (problem.grade === "predicted" ? "predicted" : problem.verdict);
const supportWords = {supported: "supported", measured: "measured", caveated: "caveated",
                      default_kept: "default kept"};
const words = {
  win: "all others are slower",
  tie: "a fixed rule chose among equals",
  unresolved: "who is fastest is not known beyond doubt",
  predicted: "by the cost model; nothing was measured",
  A: "nothing was found in the environment",
  B: "usable; a record under A replaces it",
  C: "provisional, to be measured again",
  "no trust": "nothing was measured",
  supported: "clearly faster than the default, trust A",
  measured: "measured, but not supported",
  caveated: "trust C, or only predicted",
  "default kept": "no candidate beat the default",
  equal: "both are predictions, of the same winner and the same time",
};
const trustOf = (problem) => (problem.grade === "predicted" ? "no trust" : problem.trust);
const tone = {win: "good", tie: "calm", unresolved: "warn", predicted: "mute",
              A: "good", B: "warn", C: "bad", "no trust": "mute",
              supported: "good", measured: "calm", caveated: "warn", "default kept": "mute",
              faster: "good", slower: "bad", same: "calm", equal: "mute", unclear: "mute"};
const chip = (word) => html("span", {class: "chip " + (tone[word] || "mute"), title: words[word]}, word);
