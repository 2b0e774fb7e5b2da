// The head of the page, the comparison and the roofline.

/// How many problems have each value, the values in a fixed order.
function counts(order, of) {
  return order.map((value) => [value, problems.filter((problem) => of(problem) === value).length])
    .filter(([, count]) => count > 0);
}

/// A bar of shares with buttons that filter the decisions.
function distribution(name, order, of, filter) {
  const all = counts(order, of);
  return html("div", {class: "distribution"},
    html("h2", {}, name),
    html("div", {class: "bar", "aria-hidden": "true"}, all.map(([value, count]) => {
      const part = html("i", {class: tone[value] || "mute"});
      part.style.flexGrow = count;
      return part;
    })),
    html("ul", {}, all.map(([value, count]) => html("li", {},
      html("button", {type: "button", class: "link", title: words[value], onclick: () => filter(value)},
        html("i", {class: "dot " + (tone[value] || "mute")}), `${value} `, html("b", {}, count))))));
}

const unique = (values) => [...new Set(values.filter(Boolean))];
/// One value, or how many there are.
const oneOf = (values, many) => {
  const all = unique(values);
  return all.length === 0 ? null : all.length <= 2 ? all.join(", ") : `${all.length} ${many}`;
};

function head(filters) {
  const measured = problems.filter((problem) => problem.default);
  const gain = measured.length === 0 ? null
    : Math.exp(measured.reduce((sum, problem) => sum + problem.default[0], 0) / measured.length);
  const all = [...problems, ...families];
  const dates = all.map((one) => one.created.slice(0, 10)).sort();
  const span = dates.length === 0 ? null
    : dates[0] === dates[dates.length - 1] ? dates[0] : `${dates[0]} to ${dates[dates.length - 1]}`;
  const facts = [
    oneOf(all.map((p) => `${p.device || p.sku} (${p.sku}, ${p.target})`), "devices"),
    oneOf(all.map((p) => p.driver && `driver ${p.driver}`), "drivers"),
    oneOf(all.map((p) => p.compiler.split(" ").slice(0, 2).join(" ")), "compilers"),
    oneOf(all.map((p) => p.kernwright && `kernwright ${p.kernwright}`), "versions of kernwright"),
    oneOf(all.map((p) => p.policy), "policies"),
    span,
  ].filter(Boolean);
  const alone = all.length === 1 && data.missing.length === 0;
  const single = alone && problems.length === 1;
  return html("header", {},
    html("p", {class: "brand"}, "kernwright ", html("span", {}, "tuning report")),
    html("h1", {class: alone ? "mono" : null}, alone ? all[0].problem : data.sources.join(", ")),
    html("p", {class: "facts"}, facts.map((fact) => html("span", {}, fact))),
    html("div", {class: "figures"},
      single ? tally(formatUs(problems[0].us), problems[0].grade === "predicted" ? "by the cost model" : "the winner's time")
        : data.missing.length > 0 ? tally(all.length, `of ${all.length + data.missing.length} problems ${all.length === 1 ? "has" : "have"} a record`)
        : problems.length === 0 ? null : tally(problems.length, problems.length === 1 ? "problem" : "problems"),
      families.length === 0 ? null : tally(families.length, families.length === 1 ? "family of sizes" : "families of sizes"),
      single && problems[0].roofline > 0 && problems[0].bound !== "launch"
        ? tally(formatShare(problems[0].roofline), `of its roof, ${formatUs(problems[0].roofline_us)}`) : null,
      gain === null ? null
        : html("div", {class: "tally", title: `of ${plural(measured.length, "problem", "problems")} whose default did not win`},
            html("b", {}, digits(gain, 3) + "×"),
            measured.length === 1 ? " against the default" : " against the defaults, geometric mean"),
      single || problems.length === 0 ? null : [
        distribution("Verdict", ["win", "tie", "unresolved", "predicted"], verdictOf, (value) => filters.set("verdict", value)),
        distribution("Trust", ["A", "B", "C", "no trust"], trustOf, (value) => filters.set("trust", value)),
        distribution("Support", ["supported", "measured", "default kept", "caveated"],
          (problem) => supportWords[problem.support], (value) => filters.set("support", value)),
      ]),
    data.signs.length === 0 ? (problems.length === 0 ? null
        : html("p", {class: "signs none"}, "No bad sign: every record was measured, its race was decided, and the environment was quiet."))
      : html("ul", {class: "signs"}, data.signs.map((sign) => html("li", {}, sign.text,
          sign.problems.length === 0 || single ? null
            : html("button", {type: "button", class: "link", onclick: () => filters.only(sign.problems, sign.text)}, "show")))),
    data.missing.length === 0 ? null : html("details", {class: "behind"},
      html("summary", {}, `${plural(data.missing.length, "problem", "problems")} without a record`),
      html("ul", {class: "mono"}, data.missing.map((one) => html("li", {}, one.problem)))),
    data.defects.length === 0 ? null : html("details", {class: "behind"},
      html("summary", {}, `${plural(data.defects.length, "file", "files")} that could not be read`),
      html("ul", {class: "mono"}, data.defects.map((one) => html("li", {}, one)))));
}

const tally = (value, words) => html("div", {class: "tally"}, html("b", {}, value), " ", words);

/// Lists what became faster and slower.
function comparison(filters) {
  if (!data.compare) return null;
  const nameOf = (row) => problems[row.index].problem;
  const rows = [...data.compare.rows].sort((a, b) => a.slowdown[0] - b.slowdown[0] || naturally(nameOf(a), nameOf(b)));
  const order = ["faster", "slower", "same", "equal", "unclear"];
  const size = (change) => rows.filter((row) => row.change === change).length;
  const limit = Math.max(2, ...rows.map((row) => Math.min(40, Math.abs(percentOf(row.slowdown[0])) * 1.15)));
  const glyph = (row) => {
    const x = linear([-limit, limit], [0, 160]);
    const clip = (log) => Math.min(159, Math.max(1, x(percentOf(log))));
    const [estimate, low, high] = row.slowdown;
    return svg("svg", {viewBox: "0 0 160 14", class: "glyph " + tone[row.change], width: 160, height: 14, "aria-hidden": "true"},
      line(80, 0, 80, 14, "axis"), line(clip(low), 7, clip(high), 7, "whisker"),
      svg("circle", {cx: clip(estimate), cy: 7, r: 3.5}));
  };
  const others = [
    data.compare.only_before ? `${plural(data.compare.only_before, "problem is", "problems are")} only in ${data.compare.name}` : null,
    data.compare.only_after ? `${plural(data.compare.only_after, "problem is", "problems are")} only here` : null,
  ].filter(Boolean).join("; ");
  return html("section", {id: "compare"},
    html("h2", {}, `Against ${data.compare.name}`),
    html("p", {class: "lead"}, order.filter(size).map((change) => html("span", {}, chip(change), ` ${size(change)}`)),
      others ? html("span", {class: "soft"}, `${rows.length === 0 ? "No problem is in both: " : ""}${others}.`) : null),
    rows.length === 0 ? null : html("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": `Problems against ${data.compare.name}`}, html("table", {class: "plain compare"},
      html("thead", {}, html("tr", {}, ["Problem", "Outcome", "Change", "Interval", "", "Before", "Now", "Winner"].map((name, i) =>
        html("th", {scope: "col", class: [2, 3, 5, 6].includes(i) ? "number" : null}, name)))),
      html("tbody", {}, rows.map((row) => {
        const problem = problems[row.index];
        return html("tr", {},
          html("th", {scope: "row"}, html("button", {type: "button", class: "link", onclick: () => filters.open(row.index)}, problemText(problem.problem))),
          html("td", {}, chip(row.change)),
          html("td", {class: "number"}, formatPercent(percentOf(row.slowdown[0]), true)),
          html("td", {class: "number soft"}, row.slowdown[1] === row.slowdown[2] ? "none" : `${formatPercent(percentOf(row.slowdown[1]), true)} to ${formatPercent(percentOf(row.slowdown[2]), true)}`),
          html("td", {}, glyph(row)),
          html("td", {class: "number"}, formatUs(row.before_us)),
          html("td", {class: "number"}, formatUs(row.after_us)),
          html("td", {class: "soft"}, [row.same_choice ? "the same" : "another",
            row.driver !== undefined ? "other driver" : null, row.compiler !== undefined ? "other compiler" : null].filter(Boolean).join(", ")));
      })))),
    rows.length === 0 ? null : html("p", {class: "note"}, "Change of time, negative is faster. The interval is that of both medians, widened by what fresh sessions differ."));
}

const palette = 6;
/// A class for each of the most frequent names, and among equally frequent ones for those of the
/// largest sum; the others share the last. `all` has names and numbers.
function colours(all) {
  const sums = new Map();
  for (const [name, value] of all) {
    const [count, sum] = sums.get(name) || [0, 0];
    sums.set(name, [count + 1, sum + value]);
  }
  const order = [...sums].sort(([one, a], [other, b]) => b[0] - a[0] || b[1] - a[1] || naturally(one, other)).map(([name]) => name);
  const map = new Map(order.map((name, i) => [name, "c" + Math.min(i, palette - 1)]));
  map.legend = () => html("ul", {class: "legend"}, order.slice(0, palette).map((name, i) => html("li", {},
    html("i", {class: "dot c" + i}), i === palette - 1 && order.length > palette ? "others" : name)));
  return map;
}

const counterSum = (set, name) => {
  let sum = 0;
  for (const kernel of set.kernels) {
    const value = kernel.values[name];
    if (typeof value !== "number") return null;
    sum += value;
  }
  return sum;
};
/// The bytes that the winner moved by its counters, if they were collected.
function measuredBytes(problem) {
  const winner = problem.finalists[0];
  const id = winner.template + configurationText(winner.configuration);
  const own = (problem.counters || []).filter((one) => one.template + configurationText(one.configuration) === id);
  const set = own.find((one) => problem.policy.includes(`l2=${one.cache}`)) || own[0];
  if (!set) return null;
  const read = counterSum(set, "dram__bytes_read.sum");
  const written = counterSum(set, "dram__bytes_write.sum");
  return read === null || written === null || read + written <= 0 ? null : read + written;
}

const fewPoints = 24;  // so many may each have a name

/// The problems that the matrix shows, between what they must move and compute.
function roofline(matrix) {
  const drawable = (device) => (problem) => problem.sku === device.sku && problem.work && problem.us > 0;
  const devices = data.devices.filter((device) => problems.some(drawable(device)));
  if (devices.length === 0) return null;
  let [shown] = devices;
  let asked = problems;
  const holder = html("section", {id: "roofline"}, html("h2", {}, "Roofline"), html("div", {}));
  const build = () => {
    const all = asked.filter(drawable(shown));
    const drawn = all.filter((problem) => problem.work.flops > 0 && problem.work.bytes > 0);
    const colour = colours(drawn.map((problem) => [problem.operation, problem.us]));
    // If each operation has about one problem, colours tell nothing: names do.
    const named = drawn.length <= fewPoints && colour.size > palette - 1;
    const predicted = drawn.some((problem) => problem.grade === "predicted") && drawn.some((problem) => problem.grade !== "predicted");
    const points = drawn.map((problem) => ({
      problem, index: problems.indexOf(problem),
      intensity: problem.work.flops / problem.work.bytes,
      tflops: problem.work.flops / problem.us / 1e6,
      measured: measuredBytes(problem),
    }));
    const rates = [...new Set(drawn.map((problem) => problem.work.tflops))].sort((a, b) => a - b);
    const names = (rate) => {
      const dense = shown.dense_16bit_tflops;
      const near = (value) => Math.abs(rate - value) < 1e-3 * value;
      return near(2 * dense) ? "tensor, 8 bits" : near(dense) ? "tensor, 16 bits" : near(dense / 2) ? "tensor, tf32" : near(shown.fp32_tflops) ? "fp32" : "";
    };
    const draw = (width) => {
      const frame = new Frame(width, Math.min(420, Math.max(300, width * 0.42)), {left: 62, right: 16, top: 26, bottom: 40});
      const reached = points.flatMap((point) => [point.intensity, ...(point.measured ? [point.problem.work.flops / point.measured] : [])]);
      const highest = Math.max(...rates);
      const ridge = highest * 1e3 / shown.dram_gbps;
      const x = logarithmic([Math.min(...reached, ridge / 10) / 2, Math.max(...reached, ridge) * 2.5], [frame.left, frame.right]);
      const low = Math.min(...points.map((point) => point.tflops)) / 1.6;
      const y = logarithmic([low, highest * 1.6], [frame.bottom, frame.top]);
      frame.xAxis(x, tickText, "flop per byte of memory").yAxis(y, tickText, "TFLOP/s");
      const places = new Places(frame);
      const texts = [];  // drawn when all lines and points are known
      // A slope, from its entry into the plot to the highest roof, with its name along it.
      const roof = (gbps, kind, name) => {
        const start = Math.max(x.invert(frame.left), low * 1e3 / gbps);
        const [x1, y1] = [x(start), y(start * gbps / 1e3)];
        const [x2, y2] = [x(highest * 1e3 / gbps), y(highest)];
        const angle = Math.atan2(y2 - y1, x2 - x1);
        frame.add(line(x1, y1, x2, y2, "roof " + kind));
        places.line(x1, y1, x2, y2);
        const beside = (share, away) => ({x: x1 + share * (x2 - x1) + away * Math.sin(angle), y: y1 + share * (y2 - y1) - away * Math.cos(angle),
          anchor: "middle", angle});
        const shares = [0.45, 0.35, 0.55, 0.25, 0.65, 0.75, 0.15, 0.85];
        texts.push([name, [...shares.map((share) => beside(share, 7)), ...shares.map((share) => beside(share, -16))]]);
      };
      if (shown.l2_gbps > shown.dram_gbps) roof(shown.l2_gbps, "l2", `L2, ${digits(shown.l2_gbps / 1000)} TB/s`);
      roof(shown.dram_gbps, "dram", `DRAM, ${digits(shown.dram_gbps / 1000)} TB/s`);
      for (const rate of rates) {
        const begin = Math.max(frame.left, x(rate * 1e3 / Math.max(shown.l2_gbps, shown.dram_gbps)));
        frame.add(line(begin, y(rate), frame.right, y(rate), "roof"));
        places.line(begin, y(rate), frame.right, y(rate));
        const ends = [4, 40, 80, 120, 160, 200].map((away) => frame.right - away);
        const at = (dy) => ends.map((end) => ({x: end, y: y(rate) + dy, anchor: "end"}));
        texts.unshift([`${names(rate)}, ${digits(rate)}${width < 500 ? "" : " TFLOP/s"}`, [...at(-6), ...at(15)]]);
      }
      for (const point of points) {
        point.x = x(point.intensity);
        point.y = y(point.tflops);
        places.point(point.x, point.y);
      }
      for (const point of points) {
        const kind = named ? "c0" : colour.get(point.problem.operation);
        if (point.measured) {
          const second = x(point.problem.work.flops / point.measured);
          frame.add(line(point.x, point.y, second, point.y, "link " + kind),
            svg("circle", {cx: second, cy: point.y, r: 4, class: "hollow " + kind}));
        }
        frame.add(svg("circle", {cx: point.x, cy: point.y, r: 4, class: "point " + kind + (predicted && point.problem.grade === "predicted" ? " faint" : "")}));
      }
      for (const [text, where] of texts) places.put(text, "tick", where, true);
      if (named) {
        for (const point of [...points].sort((a, b) => b.problem.us - a.problem.us)) {
          const beside = [0, 14, -14].flatMap((dy) => [{x: point.x + 13, y: point.y + dy + 4, anchor: "start"}, {x: point.x - 13, y: point.y + dy + 4, anchor: "end"}]);
          places.put(point.problem.operation, "tick", beside, false);
        }
      }
      return frame.root;
    };
    const without = all.length - drawn.length;
    const caption = `Each point is a problem: what it computes per byte that it has to move, and how fast. ${
      asked.length < problems.length ? `Drawn are those that the decisions show, ${drawn.length} of ${problems.length}. ` : ""}${
      predicted ? "Pale marks are predicted. " : ""}${
      points.some((point) => point.measured) ? "Hollow marks: by the bytes that the counters saw. " : ""}${
      without > 0 ? `${plural(without, "problem computes", "problems compute")} nothing that counts as flops and ${without === 1 ? "is" : "are"} not drawn.` : ""}`;
    const controls = html("div", {class: "controls"},
      devices.length > 1 ? select("Device", devices.map((one) => [one.sku, one.name]), shown.sku, (sku) => {
        shown = devices.find((one) => one.sku === sku);
        renew();
      }) : null, named ? null : colour.legend());
    if (points.length === 0) {
      return html("section", {class: "panel"}, html("h3", {}, shown.name), html("p", {class: "caption"}, "No problem that the decisions show can be drawn."), controls);
    }
    return figure({name: shown.name, caption, draw, controls, table: {
      head: ["Problem", "flop/byte", "TFLOP/s", "of its roof", "bound by", "flop/byte by counters"],
      rows: () => points.map((point) => [point.problem.problem, digits(point.intensity), digits(point.tflops),
        formatShare(point.problem.roofline), point.problem.bound || "–",
        point.measured ? digits(point.problem.work.flops / point.measured) : "–"]),
    },
    after: (element) => explorable(element, points, {
      lines: (point) => [point.problem.problem, `${digits(point.tflops)} TFLOP/s at ${digits(point.intensity)} flop/byte`,
        `${formatShare(point.problem.roofline)} of its roof${point.problem.bound ? `, bound by ${point.problem.bound}` : ""}`,
        ...(point.measured ? [`the counters saw ${formatSi(point.measured, "B")}, ${digits(point.measured / point.problem.work.bytes)} times what it has to move`] : [])],
      choose: (point) => matrix.open(point.index),
    })});
  };
  const renew = () => holder.lastChild.replaceWith(build());
  matrix.follow((now) => {
    const before = new Set(asked);
    const sorted = now.length === before.size && now.every((problem) => before.has(problem));
    if (sorted && holder.lastChild.hasChildNodes()) return;
    asked = now;
    renew();
  });
  return holder;
}
