// The decisions: a table of all problems to sort, to filter and to open.

const columns = [
  {key: "problem", name: "Problem", of: (p) => p.problem, text: true},
  {key: "sku", name: "SKU", of: (p) => p.sku, text: true, only: () => unique(problems.map((p) => p.sku)).length > 1},
  {key: "time", name: "Time", of: (p) => p.us, hint: "median of the winner in the finals"},
  {key: "roofline", name: "Of roof", of: (p) => p.roofline, hint: "the time that memory and arithmetic need at least, over the time taken"},
  {key: "bound", name: "Bound", of: (p) => p.bound || "", text: true, hint: "what limits the winner"},
  {key: "winner", name: "Winner", of: (p) => p.finalists[0].template, text: true},
  {key: "margin", name: "Margin", of: (p) => (p.margin ? p.margin[0] : -Infinity), hint: "how much slower the runner-up is in the rounds that both were in, with the interval that holds the truth with 99.8 %; below 0 where a rule chose among those that cannot be told apart"},
  {key: "default", name: "To default", of: (p) => (p.default ? p.default[0] : 0), hint: "how many times the winner's time the default takes, with its interval"},
  {key: "verdict", name: "Verdict", of: (p) => ["win", "tie", "unresolved", "predicted"].indexOf(verdictOf(p))},
  {key: "trust", name: "Trust", of: (p) => ["A", "B", "C", "no trust"].indexOf(trustOf(p))},
  {key: "support", name: "Support", of: (p) => ["supported", "measured", "default_kept", "caveated"].indexOf(p.support)},
].filter((column) => !column.only || column.only());

const range = ([, low, high], format) => `${format(low)} – ${format(high)}`.replaceAll("-", "−");
/// The runner-up's slowdown in percent, with as many digits as its interval needs to have a width.
function marginText(margin) {
  const [estimate, low, high] = margin.map(percentOf);
  const count = low < high && high - low < 0.1 ? 2 : 1;
  const text = (value) => Number(value.toFixed(count)).toFixed(count).replace(/^-(?=[0.]+$)/, "");
  if (low === high) return [`${text(estimate)}\u00a0%`, html("small", {}, "alike in all rounds")];
  return [text(estimate).replace("-", "−") + "\u00a0%", html("small", {}, range([0, low, high], text))];
}
const times = (log) => digits(Math.exp(log), 3) + "×";

function cells(problem, open) {
  const share = html("i", {class: "share"});
  share.style.width = Math.min(100, 100 * problem.roofline) + "%";
  const contents = {
    problem: html("button", {type: "button", class: "open", "aria-expanded": "false", onclick: open}, problemText(problem.problem)),
    sku: problem.sku,
    time: formatUs(problem.us),
    roofline: problem.bound === "launch" ? html("span", {class: "soft"}, "launch")
      : [html("span", {class: "track"}, share), formatShare(problem.roofline)],
    bound: problem.bound || "–",
    winner: html("span", {title: configurationText(problem.finalists[0].configuration)}, shortTemplate(problem.finalists[0].template)),
    margin: problem.margin ? marginText(problem.margin)
      : problem.grade === "predicted" ? "–" : html("span", {class: "soft", title: "no round had both, so nothing was compared"}, "not compared"),
    default: problem.default ? [times(problem.default[0]), html("small", {}, range(problem.default, (v) => digits(Math.exp(v), 3)))]
      : problem.finalists[0].default ? html("span", {class: "soft"}, "it won") : "–",
    verdict: chip(verdictOf(problem)),
    trust: problem.grade === "predicted" ? html("span", {class: "soft"}, "–") : chip(problem.trust),
    support: chip(supportWords[problem.support]),
  };
  return columns.map((column) => html("td", {
    class: [column.text || ["verdict", "trust", "support"].includes(column.key) ? "" : "number", "k-" + column.key].join(" ").trim(),
    "data-name": column.name}, contents[column.key]));
}

function csv(rows) {
  const quote = (value) => {
    const text = String(value ?? "");
    // A spreadsheet would run what begins like a formula.
    const plain = /^[=+@\t\r-]/.test(text) && typeof value !== "number" ? "'" + text : text;
    return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  const names = ["problem", "sku", "policy", "grade", "us", "roofline_us", "roofline_share", "bound", "template", "configuration",
    "margin", "margin_low", "margin_high", "default_ratio", "default_ratio_low", "default_ratio_high", "verdict", "trust", "support", "created"];
  const lines = rows.map((p) => [p.problem, p.sku, p.policy, p.grade, p.us, p.roofline_us, p.roofline, p.bound,
    p.finalists[0].template, configurationText(p.finalists[0].configuration),
    ...(p.margin ? p.margin.map(Math.expm1) : ["", "", ""]), ...(p.default ? p.default.map(Math.exp) : ["", "", ""]),
    verdictOf(p), p.grade === "predicted" ? "" : p.trust, p.support, p.created].map(quote).join(","));
  return [names.join(","), ...lines].join("\n") + "\n";
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  html("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

class Matrix {
  constructor() {
    this.filters = {text: "", operation: "", bound: "", verdict: "", trust: "", support: ""};
    this.subset = null;
    this.sorted = {key: "problem", down: false};
    this.rows = problems.map((problem, index) => ({
      problem, index, text: [problem.problem, problem.finalists[0].template, problem.sku].join(" ").toLowerCase(),
      row: null, detail: null}));
    this.body = html("tbody", {});
    this.count = html("span", {class: "count", role: "status"});
    this.none = html("tr", {class: "none"}, html("td", {colspan: columns.length}, "No problem matches. ",
      html("button", {type: "button", class: "link", onclick: () => this.clear()}, "Show all")));
    this.followers = [];
    this.element = this.build();
    this.apply();
  }

  /// Calls it with the problems that are shown, now and whenever others are.
  follow(follower) {
    this.followers.push(follower);
    follower(this.shown.map((one) => one.problem));
  }

  build() {
    const option = (key, name, of) => {
      const values = unique(problems.map(of)).sort();
      if (values.length < 2) return null;
      const control = html("select", {"data-filter": key, onchange: (event) => this.set(key, event.target.value)},
        html("option", {value: ""}, "any"), values.map((value) => html("option", {value}, value)));
      return html("label", {class: "select"}, name + " ", control);
    };
    this.of = {operation: (p) => p.operation, bound: (p) => p.bound, verdict: verdictOf, trust: trustOf,
               support: (p) => supportWords[p.support]};
    this.search = html("input", {type: "search", placeholder: "Filter, e.g. m=16 bf16", "aria-label": "Filter the problems by words",
      oninput: () => { this.filters.text = this.search.value; this.apply(); }});
    this.chosen = html("span", {class: "subset", hidden: true});
    const toolbar = problems.length < 2 ? null : html("div", {class: "toolbar"}, this.search,
      option("operation", "Operation", this.of.operation), option("bound", "Bound", this.of.bound),
      option("verdict", "Verdict", this.of.verdict), option("trust", "Trust", this.of.trust),
      option("support", "Support", this.of.support), this.chosen,
      html("button", {type: "button", class: "quiet", onclick: () => this.clear()}, "Clear"));
    const title = html("div", {class: "heading"}, html("h2", {}, "Decisions"), problems.length < 2 ? null : [this.count,
      html("button", {type: "button", class: "quiet", title: "Save what is shown", onclick: () => download("decisions.csv", csv(this.shown.map((one) => one.problem)))}, "CSV")]);
    this.heads = columns.map((column) => html("th", {scope: "col", "aria-sort": "none",
      class: ["k-" + column.key, column.text || ["verdict", "trust", "support"].includes(column.key) ? "" : "number"].join(" ").trim(), title: column.hint},
      problems.length < 2 ? column.name
        : html("button", {type: "button", onclick: () => this.sort(column.key)}, column.name)));
    const body = html("table", {class: "matrix"}, html("thead", {}, html("tr", {}, this.heads)), this.body);
    this.body.addEventListener("keydown", (event) => this.move(event));
    return html("section", {id: "decisions", tabindex: "-1"}, title, toolbar, body);
  }

  /// Up and down go from one problem to the next.
  move(event) {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    const button = event.target.closest("button.open");
    if (!step || !button) return;
    const at = this.shown.findIndex((one) => one.row && one.row.contains(button));
    const next = this.shown[at + step];
    if (next) next.row.querySelector("button.open").focus();
    event.preventDefault();
  }

  /// All of a row opens it, unless text of it was marked.
  click(one, event) {
    if (event.target.closest("button, a") || String(getSelection())) return;
    this.toggle(one);
  }

  rowOf(one) {
    if (!one.row) {
      one.row = html("tr", {"data-index": one.index, onclick: (event) => this.click(one, event)},
        cells(one.problem, () => this.toggle(one)));
    }
    return one.row;
  }

  apply() {
    const asked = this.filters.text.toLowerCase().split(/\s+/).filter(Boolean);
    this.shown = this.rows.filter((one) =>
      (!this.subset || this.subset.has(one.index)) &&
      Object.entries(this.of).every(([key, of]) => !this.filters[key] || of(one.problem) === this.filters[key]) &&
      asked.every((word) => one.text.includes(word)));
    const column = columns.find((one) => one.key === this.sorted.key);
    const sign = this.sorted.down ? -1 : 1;
    const compare = column.text ? naturally : (a, b) => a - b;
    this.shown.sort((a, b) => sign * compare(column.of(a.problem), column.of(b.problem)) || a.index - b.index);
    if (problems.length > 1) {
      columns.forEach((one, i) => this.heads[i].setAttribute("aria-sort", one !== column ? "none" : this.sorted.down ? "descending" : "ascending"));
    }
    this.body.replaceChildren(...this.shown.flatMap((one) => (one.detail ? [this.rowOf(one), one.detail] : [this.rowOf(one)])));
    if (this.shown.length === 0) this.body.append(this.none);
    this.count.textContent = this.shown.length === problems.length ? plural(problems.length, "problem", "problems")
      : `${this.shown.length} of ${problems.length} problems`;
    for (const follower of this.followers) follower(this.shown.map((one) => one.problem));
  }

  sort(key) {
    const column = columns.find((one) => one.key === key);
    const first = this.sorted.key !== key;
    // Numbers are more often asked for from their largest.
    const down = first ? !column.text && !["verdict", "trust", "support"].includes(key) : !this.sorted.down;
    this.sorted = {key, down};
    this.apply();
  }

  set(key, value) {
    this.filters[key] = value;
    const control = this.element.querySelector(`select[data-filter="${key}"]`);
    if (control) control.value = value;
    this.apply();
    if (!this.element.contains(document.activeElement)) this.element.scrollIntoView({block: "start"});
  }

  only(indices, text) {
    this.subset = new Set(indices);
    this.chosen.textContent = text;
    this.chosen.hidden = false;
    this.apply();
    this.element.scrollIntoView({block: "start"});
  }

  clear() {
    this.subset = null;
    this.chosen.hidden = true;
    this.search.value = "";
    for (const key of Object.keys(this.filters)) this.filters[key] = "";
    for (const control of this.element.querySelectorAll("select[data-filter]")) control.value = "";
    this.apply();
  }

  toggle(one) {
    const button = this.rowOf(one).querySelector("button.open");
    if (one.detail) {
      one.detail.remove();
      one.detail = null;
    } else {
      one.detail = html("tr", {class: "detail"}, html("td", {colspan: columns.length}, detail(one.problem)));
      one.row.after(one.detail);
    }
    one.row.classList.toggle("opened", Boolean(one.detail));
    button.setAttribute("aria-expanded", String(Boolean(one.detail)));
  }

  /// Opens a problem, whatever is filtered, and goes there.
  open(index) {
    const one = this.rows[index];
    if (!this.shown.includes(one)) this.clear();
    if (!one.detail) this.toggle(one);
    one.row.scrollIntoView({block: "start"});
    one.row.querySelector("button.open").focus({preventScroll: true});
  }
}
