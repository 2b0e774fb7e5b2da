// The trials of a search: the landscape, the history, what explains the spread.

/// The values of a column that names each once: `places` are digits of base 64, as many for each row as
/// tell the values apart.
function column({values, places}) {
  const code = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  let width = 1;
  for (let most = 64; most < values.length; most *= 64) ++width;
  const rows = [];
  for (let i = 0; i < places.length; i += width) {
    let place = 0;
    for (let digit = 0; digit < width; ++digit) place = place * 64 + code.indexOf(places[i + digit]);
    rows.push(values[place]);
  }
  return rows;
}

/// The rows of a problem's trials, made of their columns.
function trialsOf(problem) {
  const columns = problem.trials;
  if (!columns || columns.missing) return null;
  if (columns.rows) return columns.rows;
  const id = (template, configuration) => template + " " + configurationText(configuration);
  const finalists = new Map(problem.finalists.map((finalist, i) => [id(finalist.template, finalist.configuration), i]));
  const forms = columns.templates.map((form) => ({
    template: form.template, used: 0, parameters: form.parameters.map((parameter) => [parameter.name, column(parameter)])}));
  const [outcome, detail, samples, registers, spills] =
    ["outcome", "detail", "samples", "registers", "spill_bytes"].map((name) => column(columns[name]));
  columns.rows = column({values: forms, places: columns.template}).map((form, i) => {
    const own = form.used++;
    const configuration = Object.fromEntries(form.parameters.map(([name, values]) => [name, values[own]]));
    const at = finalists.get(id(form.template, configuration));
    return {order: i + 1, template: form.template, configuration, outcome: outcome[i], detail: detail[i], us: columns.us[i],
            samples: samples[i], predicted_us: columns.predicted_us[i], at: columns.at_seconds[i], registers: registers[i],
            spill_bytes: spills[i], finalist: at === undefined ? -1 : at,
            isDefault: at !== undefined && Boolean(problem.finalists[at].default)};
  });
  return columns.rows;
}
const passed = (trial) => trial.outcome === "ok" && trial.us > 0;
const outcomeWords = (outcome) => outcome.replaceAll("_", " ");
function trialLines(trial) {
  return [trial.template, configurationText(trial.configuration),
    passed(trial) ? `${formatUs(trial.us)}, the median of ${plural(trial.samples, "sample", "samples")}`
      : outcomeWords(trial.outcome) + (trial.detail ? ": " + trial.detail : ""),
    (trial.predicted_us > 0 ? `predicted ${formatUs(trial.predicted_us)}, ` : "") + `trial ${trial.order} at ${formatSeconds(trial.at)}`];
}

/// All trials: time against anything.
function landscape(problem) {
  const trials = trialsOf(problem);
  if (!trials) return null;
  const ok = trials.filter(passed);
  if (ok.length === 0) return null;
  const failed = trials.filter((trial) => trial.outcome !== "ok");
  const [winner] = problem.finalists;
  const parameters = unique(trials.flatMap((trial) => Object.keys(trial.configuration)))
    .filter((name) => new Set(trials.map((trial) => trial.configuration[name])).size > 1);
  const choices = [["order", "order of trials"], ["predicted", "predicted time"], ["registers", "registers"], ...parameters.map((name) => ["p:" + name, name])];
  let axis = "order";
  const colour = colours(ok.map((trial) => [trial.template, 1]));
  const counts = new Map();
  for (const trial of failed) counts.set(trial.outcome, (counts.get(trial.outcome) || 0) + 1);
  const reasons = [...counts].sort((a, b) => b[1] - a[1]).map(([outcome, count]) => `${count} ${outcomeWords(outcome)}`).join(", ");
  let points = [];
  const draw = (width) => {
    const strip = failed.length > 0 ? 36 : 0;
    const frame = new Frame(width, 330 + strip, {left: 58, right: 14, top: 26 + strip, bottom: 42});
    const times = ok.map((trial) => trial.us);
    const y = logarithmic([Math.min(...times) / 1.03, Math.max(...times) * 1.05], [frame.bottom, frame.top]);
    frame.yAxis(y, tickText, "µs");
    let place;
    const spread = (trial, step) => (((trial.order * 0.618034) % 1) - 0.5) * step;
    if (axis.startsWith("p:")) {
      const name = axis.slice(2);
      const values = [...new Set(trials.map((trial) => trial.configuration[name]))].sort((a, b) => (a ?? Infinity) - (b ?? Infinity));
      const step = (frame.right - frame.left) / values.length;
      const middle = (value) => frame.left + (values.indexOf(value) + 0.5) * step;
      frame.xAxis(middle, (value) => (value === undefined ? "none" : String(value)), name, values);
      place = (trial) => middle(trial.configuration[name]) + spread(trial, Math.min(step * 0.6, 60));
    } else {
      const of = {order: (trial) => trial.order, predicted: (trial) => trial.predicted_us || NaN, registers: (trial) => trial.registers}[axis];
      const values = trials.map(of).filter((value) => value > 0);
      const ends = [Math.min(...values), Math.max(...values)];
      const scale = axis === "predicted" ? logarithmic([ends[0] / 1.05, ends[1] * 1.05], [frame.left, frame.right])
        : linear([ends[0] - 0.03 * (ends[1] - ends[0]), ends[1] + 0.03 * (ends[1] - ends[0])], [frame.left, frame.right]);
      frame.xAxis(scale, (value) => tickText(value), choices.find(([key]) => key === axis)[1]);
      place = (trial) => scale(of(trial));
      if (axis === "predicted") {
        const from = Math.max(scale.invert(frame.left), y.invert(frame.bottom));
        const to = Math.min(scale.invert(frame.right), y.invert(frame.top));
        if (to > from) frame.add(line(scale(from), y(from), scale(to), y(to), "guide"));
      }
    }
    points = [];
    if (strip) {
      frame.add(svg("rect", {x: frame.left, y: 16, width: frame.right - frame.left, height: 18, class: "strip"}), label(frame.left - 7, 29, "failed", "tick", "end"));
      for (const trial of failed) {
        const point = {x: place(trial), y: 25, trial};
        if (!Number.isFinite(point.x)) continue;
        points.push(point);
        frame.add(svg("path", {d: `M${point.x - 3} ${point.y - 3}l6 6m0-6l-6 6`, class: "cross"}));
      }
    }
    for (const trial of [...ok].reverse()) {
      const point = {x: place(trial), y: y(trial.us), trial};
      if (!Number.isFinite(point.x)) continue;
      points.push(point);
      frame.add(svg("circle", {cx: point.x, cy: point.y, r: 3.4, class: "point " + colour.get(trial.template) + (trial.finalist < 0 ? " faint" : "")}));
      if (trial.finalist === 0) frame.add(svg("circle", {cx: point.x, cy: point.y, r: 7, class: "ring"}), label(point.x + 10, point.y + 4, "winner", "tick strong"));
      else if (trial.isDefault) frame.add(svg("rect", {x: point.x - 6, y: point.y - 6, width: 12, height: 12, transform: `rotate(45 ${point.x} ${point.y})`, class: "ring"}), label(point.x + 11, point.y + 4, "default", "tick"));
    }
    return frame.root;
  };
  const pins = html("ul", {class: "pins", hidden: true});
  const pin = ({trial}) => {
    pins.hidden = false;
    const item = html("li", {}, html("span", {class: "mono"}, `${trial.template} ${configurationText(trial.configuration)}`),
      ` ${passed(trial) ? formatUs(trial.us) + ", " + digits(trial.us / problem.us) + "× the winner" : outcomeWords(trial.outcome)} `,
      html("button", {type: "button", class: "link", onclick: () => { item.remove(); pins.hidden = pins.children.length === 0; }}, "remove"));
    pins.prepend(item);
    if (pins.children.length > 4) pins.lastChild.remove();
  };
  const element = figure({
    name: "Landscape",
    caption: `All ${trials.length} trials. Full marks reached the finals.${reasons ? ` Failed: ${reasons}.` : ""} Point at a mark for its configuration, click to pin it.`,
    draw,
    controls: html("div", {class: "controls"}, select("Against", choices, axis, (key) => { axis = key; element.redraw(); }), colour.legend()),
    after: (one) => explorable(one, points, {lines: ({trial}) => trialLines(trial), choose: pin}),
    table: {head: ["trial", "at", "template", "configuration", "outcome", "time", "samples", "predicted", "registers", "spills", "why"],
      rows: () => trials.map((trial) => [trial.order, formatSeconds(trial.at), trial.template, configurationText(trial.configuration), outcomeWords(trial.outcome),
        trial.us > 0 ? formatUs(trial.us) : "–", trial.samples, trial.predicted_us > 0 ? formatUs(trial.predicted_us) : "–", trial.registers, trial.spill_bytes, trial.detail])},
  });
  element.classList.add("wide");
  element.lastChild.before(pins);
  return element;
}

/// The best so far against the seconds of the search.
function history(problem) {
  const trials = trialsOf(problem);
  if (!trials) return null;
  const ok = trials.filter(passed);
  if (ok.length < 2) return null;
  const steps = [];
  for (const trial of ok) {
    if (steps.length === 0 || trial.us < steps[steps.length - 1].us) steps.push(trial);
  }
  const end = problem.trials.wall_seconds || Math.max(...ok.map((trial) => trial.at));
  const finals = problem.trials.finals_seconds;
  const best = steps[steps.length - 1].us;
  const left = problem.search.regret_estimate;
  const ceiling = Math.max(steps[0].us, best * 1.2) * 1.08;
  let points = [];
  const draw = (width) => {
    const frame = new Frame(width, 270, {left: 58, right: 14, top: 26, bottom: 42});
    const x = linear([0, end], [frame.left, frame.right]);
    const y = logarithmic([best / (1 + Math.max(left, 0.02)) / 1.02, ceiling], [frame.bottom, frame.top]);
    frame.yAxis(y, tickText, "µs").xAxis(x, (value) => `${value} s`, "since the budget began to run");
    if (finals > 0 && finals < end) {
      frame.add(svg("rect", {x: x(finals), y: frame.top, width: x(end) - x(finals), height: frame.bottom - frame.top, class: "band"}),
        label(frame.left + 3, frame.top - 8, "screening", "tick"),
        label(frame.right, frame.top - 8, "race of the best", "tick", "end"));
    }
    points = ok.filter((trial) => trial.us <= ceiling).map((trial) => ({x: x(trial.at), y: y(trial.us), trial}));
    for (const point of points) frame.add(svg("circle", {cx: point.x, cy: point.y, r: 2, class: "point faint"}));
    const path = steps.map((trial, i) => (i === 0 ? `M${x(trial.at)} ${y(trial.us)}` : `H${x(trial.at)}V${y(trial.us)}`)).join("") + `H${x(end)}`;
    frame.add(svg("path", {d: path, class: "trace strong"}));
    if (left > 0) {
      const reach = y(best * (1 - left));
      frame.add(line(frame.left, reach, frame.right, reach, "guide"), label(frame.left + 5, reach - 5, `what was not tried may reach ${formatUs(best * (1 - left))}`, "tick"));
    }
    return frame.root;
  };
  return figure({
    name: "History of the search",
    caption: `The best so far, ${plural(steps.length - 1, "improvement", "improvements")} in ${plural(trials.length, "trial", "trials")}; times of finalists are those of their finals, and slower trials lie above the plot. Stopped by ${problem.search.stop_reason.replaceAll("_", " ")}; ${left > 0 ? `what was not tried may be ${formatPercent(100 * left)} faster` : "nothing faster is expected of what was not tried"}.`,
    draw, after: (one) => explorable(one, points, {lines: ({trial}) => trialLines(trial)}),
    table: {head: ["at", "best so far", "template", "configuration"],
      rows: () => steps.map((trial) => [formatSeconds(trial.at), formatUs(trial.us), trial.template, configurationText(trial.configuration)])},
  });
}

/// Which parameters matter.
function explained(problem) {
  if (!problem.trials || problem.trials.missing) return null;
  const all = problem.trials.explained;
  if (all.length === 0) return null;
  const draw = (width) => {
    const row = 22;
    const frame = new Frame(width, 8 + row * all.length + 40, {left: Math.min(170, width * 0.4), right: 50, top: 6, bottom: 40});
    const x = linear([0, Math.max(0.1, ...all.map(([, share]) => share))], [frame.left, frame.right]);
    frame.xAxis(x, (value) => `${Math.round(100 * value)} %`, "of the spread of log times");
    all.forEach(([name, share], i) => {
      const y = frame.top + row * i + 4;
      frame.add(label(frame.left - 8, y + 11, name, "config", "end"),
        svg("rect", {x: frame.left, y, width: Math.max(1, x(share) - frame.left), height: 14, rx: 2, class: "column c0"}),
        label(x(share) + 6, y + 11, formatPercent(100 * share), "tick"));
    });
    return frame.root;
  };
  return figure({
    name: "What matters",
    caption: `How much of the spread each parameter of ${shortTemplate(problem.finalists[0].template)} explains by itself. A search tries what it hopes for, so read it as a hint.`,
    draw, table: {head: ["parameter", "explains", "values tried"], rows: () => all.map(([name, share, values]) => [name, formatPercent(100 * share), values])},
  });
}
