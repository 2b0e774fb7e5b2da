// The panels of one problem's record: the race, the clocks, the launches and the rest of the evidence.

/// Returns a text in lines of so many letters at most, broken between words if possible.
function linesOf(text, most) {
  const lines = [];
  while (text.length > most) {
    const space = text.lastIndexOf(" ", most);
    const end = space > 0 ? space : most;
    lines.push(text.slice(0, end));
    text = text.slice(end).trimStart();
  }
  return [...lines, text];
}

function summary(problem) {
  const [winner] = problem.finalists;
  const facts = [
    ["registers", winner.registers], ["shared memory", winner.smem_bytes ? formatSi(winner.smem_bytes, "B") : null],
    ["spills", winner.spill_bytes ? formatSi(winner.spill_bytes, "B") : "none"],
    ["workspace", winner.workspace_bytes ? formatSi(winner.workspace_bytes, "B") : "none"],
    ["predicted", winner.predicted_us && problem.grade !== "predicted" ? formatUs(winner.predicted_us) : null],
    ["measured", problem.created.replace("T", " ").replace("Z", " UTC")],
  ].filter(([, value]) => value);
  if (problem.grade === "predicted") facts[facts.length - 1][0] = "made";
  return html("div", {class: "summary"},
    html("p", {class: "chips"}, chip(verdictOf(problem)), problem.grade === "predicted" ? null : html("span", {class: "soft"}, " trust ", chip(problem.trust)),
      " ", chip(supportWords[problem.support])),
    html("p", {class: "words"}, problem.words.join(" ").split(/(--[a-z-]+)/).map((part, i) => (i % 2 ? html("code", {}, part) : part))),
    html("p", {class: "choice mono"}, html("b", {}, winner.template), " ", configurationText(winner.configuration)),
    html("dl", {class: "inline"}, facts.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value)))));
}

/// The finalists' slowdowns with their intervals, on one axis.
function race(problem) {
  const all = problem.finalists;
  if (all.length < 2) return null;
  const names = all.map((finalist) => finalist.role);
  const [winner] = all;
  const predicted = problem.grade === "predicted";
  const slowdown = (finalist) => predicted ? Array(3).fill(Math.log(finalist.predicted_us / winner.predicted_us)) : finalist.slowdown;
  const far = 12;  // percent; what is beyond is told in words
  const highs = all.map((finalist) => percentOf(slowdown(finalist)[2])).filter((high) => high <= far);
  const lows = all.map((finalist) => percentOf(slowdown(finalist)[1]));
  const domain = [Math.min(-0.3, ...lows), Math.max(3, ...highs) * 1.06];
  const draw = (width) => {
    // The differences of a finalist are beside its mark, or above it if there is no room.
    const wide = width > 640;
    const left = wide ? Math.min(430, width * 0.44) : 8;
    const [letter, high] = [6.8, 14];
    const texts = all.map((finalist) => linesOf(finalist.differs, Math.floor(((wide ? left - 14 : width - 70) - 116) / letter)));
    const heights = texts.map((lines) => wide ? Math.max(24, high * lines.length + 8) : high * lines.length + 28);
    const tops = heights.map((_, i) => 28 + heights.slice(0, i).reduce((sum, one) => sum + one, 0));
    const rows = heights.reduce((sum, one) => sum + one, 0);
    const frame = new Frame(width, 30 + rows + 38, {left, right: wide ? 84 : 24, top: 26, bottom: 40});
    const x = linear(domain, [frame.left, frame.right]);
    if (!predicted) {
      frame.add(svg("rect", {x: x(0), y: frame.top, width: x(percentOf(data.bands.tie)) - x(0), height: frame.bottom - frame.top, class: "band"}),
        label(x(0) + 3, frame.top - 8, "tie band", "tick"));
    }
    frame.xAxis(x, (value) => `${value} %`, predicted ? "slower than the winner, predicted" : "slower than the fastest finalist");
    frame.add(line(x(0), frame.top, x(0), frame.bottom, "zero"));
    all.forEach((finalist, i) => {
      const first = tops[i] + (wide ? heights[i] / 2 - high * (texts[i].length - 1) / 2 : 6);
      const y = wide ? tops[i] + heights[i] / 2 : tops[i] + heights[i] - 17;
      const kind = i === 0 ? "winner" : finalist.tied ? "tied" : "slower";
      const [estimate, least, most] = slowdown(finalist).map(percentOf);
      frame.add(label(0, first + 4, names[i], i === 0 ? "name strong" : "name"),
        texts[i].map((text, j) => label(116, first + high * j + 4, text, "config")));
      if (estimate > domain[1]) {
        frame.add(svg("path", {d: `M${frame.right - 9} ${y - 4}l6 4l-6 4`, class: "arrow"}),
          label(frame.right - 14, y + 4, `${formatPercent(estimate)} slower`, "tick", "end"));
      } else {
        frame.add(line(x(least), y, Math.min(frame.right, x(most)), y, "whisker " + kind), line(x(least), y - 4, x(least), y + 4, "whisker thin " + kind),
          most <= domain[1] ? line(x(most), y - 4, x(most), y + 4, "whisker thin " + kind) : null,
          finalist.default ? svg("rect", {x: x(estimate) - 4, y: y - 4, width: 8, height: 8, transform: `rotate(45 ${x(estimate)} ${y})`, class: "point " + kind})
            : svg("circle", {cx: x(estimate), cy: y, r: 4.5, class: "point " + kind}));
      }
      frame.add(label(frame.width, first + 4, formatUs(i === 0 ? problem.us : finalist.us || finalist.predicted_us), i === 0 ? "value strong" : "value", "end"));
    });
    return frame.root;
  };
  const element = figure({
    name: "Race",
    caption: predicted ? "The cost model's first choices. None of them was measured."
      : "Finalists in interleaved rounds: by how much each is slower than the fastest, with the interval that holds the truth with 99.8 %. A diamond is the default.",
    draw,
    table: {head: ["", "template", "configuration", "time", "spread", "alone", "slower by", "at least", "at most", "tied", "registers", "shared memory"],
      rows: () => all.map((finalist, i) => [names[i], finalist.template, configurationText(finalist.configuration),
        formatUs(finalist.us || finalist.predicted_us), finalist.mad_us === undefined ? "–" : formatUs(finalist.mad_us),
        finalist.alone_us ? formatUs(finalist.alone_us) : "–", ...slowdown(finalist).map((v) => formatPercent(percentOf(v))),
        finalist.tied ? "yes" : "", finalist.registers, finalist.smem_bytes || 0])},
  });
  element.classList.add("wide");
  return element;
}

/// The winner's samples with the clock under them.
function clocks(problem) {
  const samples = problem.samples;
  if (!samples || samples.us.length < 2) return null;
  const each = samples.each_of || 1;
  const dropped = new Set(samples.dropped);
  const hasClock = samples.sm_mhz.length === samples.us.length;
  const limit = (values) => {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const pad = Math.max((high - low) * 0.08, high * 0.002);
    return [low - pad, high + pad];
  };
  const blocks = samples.in_blocks ? (samples.us.length * each - samples.in_blocks) / each : null;
  const draw = (width) => {
    const height = hasClock ? 250 : 160;
    const frame = new Frame(width, height, {left: 58, right: 12, top: 24, bottom: hasClock ? 136 : 40});
    const x = linear([0, (samples.us.length - 1) * each], [frame.left + 4, frame.right - 4]);
    const y = linear(limit(samples.us), [frame.bottom, frame.top]);
    frame.yAxis(y, (value) => String(Number(value.toPrecision(5))), "µs");
    if (blocks !== null && blocks < samples.us.length) {
      const from = x((blocks - 0.5) * each);
      frame.add(svg("rect", {x: from, y: frame.top, width: frame.right - from, height: frame.bottom - frame.top, class: "band"}),
        label(frame.right, frame.top - 8, "alone, in blocks", "tick", "end"));
    }
    samples.us.forEach((us, i) => {
      const place = [x(i * each), y(us)];
      frame.add(dropped.has(i)
        ? svg("path", {d: `M${place[0] - 3} ${place[1] - 3}l6 6m0-6l-6 6`, class: "cross"})
        : svg("circle", {cx: place[0], cy: place[1], r: 2.2, class: "point c0"}));
    });
    if (!hasClock) return frame.xAxis(x, String, "round").root;
    const below = new Frame(width, height, {left: 58, right: 12, top: 146, bottom: 40});
    const mhz = linear(limit(samples.sm_mhz.filter((value) => value > 0)), [below.bottom, below.top]);
    below.yAxis(mhz, String, "MHz").xAxis(x, String, "round");
    below.add(svg("polyline", {points: samples.sm_mhz.map((value, i) => `${x(i * each).toFixed(1)},${mhz(value).toFixed(1)}`).join(" "), class: "trace"}));
    frame.add([...below.root.childNodes]);
    return frame.root;
  };
  const heat = problem.audit.map(([, , detail]) => /(\d+) C\b/.exec(detail)).find(Boolean);
  return figure({
    name: "Samples and clock",
    caption: `The winner's time in each round${hasClock ? ", and the SM clock meanwhile" : ""}.${each > 1 ? ` Each point is the median of ${each} rounds.` : ""}${dropped.size > 0 ? ` Crosses are rounds that do not count.` : ""}${heat ? ` The GPU had ${heat[1]} °C.` : ""}`,
    draw,
    table: {head: ["round", "time", "SM clock", "counts"],
      rows: () => samples.us.map((us, i) => [i * each, formatUs(us), hasClock ? `${samples.sm_mhz[i]} MHz` : "–", dropped.has(i) ? "no" : "yes"])},
  });
}

/// Bars of what each launch path costs.
function launches(problem) {
  const paths = problem.launch_paths;
  if (!paths || paths.length === 0) return null;
  const most = Math.max(...paths.flatMap(([, host, period]) => [host, period]));
  const draw = (width) => {
    const frame = new Frame(width, 30 + 46 * paths.length + 30, {left: 74, right: 70, top: 22, bottom: 36});
    const x = linear([0, most], [frame.left, frame.right]);
    frame.xAxis(x, String, "µs per launch");
    paths.forEach(([path, host, period], i) => {
      const y = frame.top + 46 * i + 6;
      frame.add(label(0, y + 21, path, path === problem.best_path ? "name strong" : "name"));
      [[period, "c0", "back to back"], [host, "c1", "host"]].forEach(([us, kind, what], j) => {
        frame.add(svg("rect", {x: frame.left, y: y + 17 * j, width: Math.max(1, x(us) - frame.left), height: 13, rx: 2, class: "column " + kind}),
          label(x(us) + 6, y + 17 * j + 10.5, formatUs(us), "tick", "start"));
        if (i === 0) frame.add(svg("circle", {cx: frame.left + 4 + 96 * j, cy: 9, r: 4, class: "point " + kind}), label(frame.left + 12 + 96 * j, 12.5, what, "tick"));
      });
    });
    return frame.root;
  };
  return figure({
    name: "Launch paths",
    caption: `What the winner costs on each launch path: the calling thread, and the period of launches back to back.${problem.best_path_words ? ` Best by ${problem.best_path_words}.` : ""}`,
    draw, table: {head: ["path", "host", "back to back"], rows: () => paths.map(([path, host, period]) => [path, formatUs(host), formatUs(period)])},
  });
}

/// Hardware counters, if they were collected.
function counters(problem) {
  const sets = problem.counters || [];
  if (sets.length === 0) return null;
  const names = unique(sets.flatMap((set) => set.kernels.flatMap((kernel) => Object.keys(kernel.values))));
  const role = (set) => {
    const at = problem.finalists.findIndex((finalist) => finalist.template + configurationText(finalist.configuration) === set.template + configurationText(set.configuration));
    return `${at < 0 ? shortTemplate(set.template) : problem.finalists[at].role}, L2 ${set.cache}`;
  };
  const format = (name, number) => name.includes("bytes") ? formatSi(number, "B") : name.includes("time_duration") ? formatUs(number / 1000)
    : name.includes("pct") ? digits(number, 3) + "\u00a0%" : digits(number, 3);
  const value = (kernel, name) => {
    const number = kernel.values[name];
    const reason = (kernel.reasons || {})[name];
    return typeof number === "number" ? format(name, number) + (reason ? ` (${reason})` : "") : reason || "–";
  };
  const columnsOf = sets.flatMap((set) => set.kernels.map((kernel) => ({set, kernel})));
  return html("section", {class: "panel wide"}, html("h3", {}, "Hardware counters"),
    html("p", {class: "caption"}, `By ${unique(sets.map((set) => `${set.source} ${set.version}`)).join(", ")}, ${unique(sets.map((set) => set.mode.replace("_", " "))).join(", ")}. They are evidence beside the times; nothing is decided by them.`),
    table("Hardware counters", ["counter", ...columnsOf.map(({set, kernel}) => role(set) + (set.kernels.length > 1 ? `, ${kernel.kernel}` : ""))],
      names.map((name) => [name, ...columnsOf.map(({kernel}) => value(kernel, name))])));
}

/// Audit, check and environment, folded if nothing is wrong.
function evidence(problem) {
  const {check} = problem;
  const proofs = [
    `${check.elements.toLocaleString("en")} elements compared, ${check.mismatches} beyond the bound, the largest error ${formatShare(check.max_error)} of it`,
    check.exact ? "exact on small integers" : null, check.guarded ? "red zones intact" : null,
    check.unmapped ? "no stray access against unmapped pages" : null,
    check.repeats ? `${check.repeats} runs ${check.deterministic ? "with equal bits" : "whose bits differ"}` : null,
    check.after_timing ? "right again after timing" : null].filter(Boolean);
  const worst = problem.trust !== "A" && problem.grade !== "predicted";
  return html("section", {class: "panel wide evidence"}, html("h3", {}, "Evidence"),
    problem.grade === "predicted" ? null : html("p", {class: "caption"}, proofs.join("; ") + "."),
    problem.audit.length === 0 ? null : html("details", {open: worst}, html("summary", {},
        `Audit of the environment: ${plural(problem.audit.length, "check", "checks")}, trust ${problem.trust}`),
      html("table", {class: "plain audit"}, html("thead", {}, html("tr", {}, ["", "check", "found"].map((name) => html("th", {scope: "col"}, name)))),
        html("tbody", {}, problem.audit.map(([name, trust, found]) => html("tr", {}, html("td", {}, chip(trust)), html("td", {class: "mono"}, name), html("td", {}, found)))))),
    html("details", {}, html("summary", {}, "Environment and search"),
      html("dl", {}, [["policy", problem.policy], ["device", `${problem.device} (${problem.sku}, ${problem.target})`], ["driver", problem.driver || "–"],
        ["compiler", problem.compiler], ["kernwright", problem.kernwright],
        ["search", `${problem.search.strategy || "–"}, stopped by ${problem.search.stop_reason || "–"}`],
        ["candidates", `${problem.search.candidates} valid, ${problem.search.rejected} break a rule, ${problem.search.compiled} compiled, ${problem.search.measured} measured, ${problem.search.failed} failed, ${problem.search.raced} raced`],
        ["trials", problem.trials.missing ? `not drawn: ${problem.trials.missing}` : null],
        ["took", formatSeconds(problem.search.wall_seconds)]].filter(([, value]) => value).flatMap(([name, value]) => [html("dt", {}, name), html("dd", {class: "mono"}, value)]))));
}

function detail(problem) {
  return html("div", {class: "grid"}, summary(problem), race(problem), landscape(problem), history(problem), explained(problem),
    clocks(problem), launches(problem), counters(problem), evidence(problem));
}
