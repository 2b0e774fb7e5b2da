// Families: which kernel serves which sizes, how long it takes, and how far it is from the best.

/// The colour of a kernel: each one in four tones.
const kernelKind = (kernel) => `c${kernel % palette}${["", " pale", " deep", " dim"][Math.floor(kernel / palette) % 4]}`;
const kernelText = ({template, configuration}) => `${template} ${configurationText(configuration)}`;
const sizesText = (family, sizes) => family.ranges.map(([name], i) => `${name}=${sizes[i]}`).join(" ");
const servedUs = (row) => row.us[row.kernel];
const rowWords = (row) => (row.anchor ? "tuned alone" : row.validation ? "validates" : "measured");

/// A mark of a row: a diamond for a size that was tuned alone, a square for one that validates. It is
/// hollow if the kernel stands in for another one.
function rowMark(row, x, y, colour) {
  const kind = `${row.stands_in ? "hollow" : "point"} ${colour}`;
  if (row.anchor) return svg("rect", {x: x - 4.4, y: y - 4.4, width: 8.8, height: 8.8, transform: `rotate(45 ${x} ${y})`, class: kind});
  if (row.validation) return svg("rect", {x: x - 3.8, y: y - 3.8, width: 7.6, height: 7.6, class: kind});
  return svg("circle", {cx: x, cy: y, r: 3.2, class: kind});
}
const marksText = (family) => [
  family.rows.some((row) => row.anchor) ? "Diamonds are sizes that were tuned alone" : null,
  family.rows.some((row) => row.validation) ? "Squares are sizes that were drawn to validate" : null,
  family.rows.some((row) => row.stands_in) ? "Where a mark is hollow, the next kernel of the table stands in for one that was not measured" : null]
  .filter(Boolean).map((sentence) => sentence + ".").join(" ");
function rowLines(family, row) {
  return [sizesText(family, row.sizes), `${formatUs(servedUs(row))} by kernel ${row.kernel + 1}${row.stands_in ? ", which stands in" : ""}: ${kernelText(family.kernels[row.kernel])}`,
    row.regret > 0 ? `${formatPercent(100 * row.regret)} slower than the best found, ${formatUs(row.best_us)}` : "nothing faster was found",
    ...(row.roofline_us > 0 ? [`roofline ${formatUs(row.roofline_us)}`] : []), rowWords(row)];
}

/// Times against the size, with the kernels above them; of several ranges, against the roofline.
function familyTimes(family, served) {
  const single = family.ranges.length === 1;
  const across = (row) => (single ? row.sizes[0] : row.roofline_us);
  const drawn = served.filter((row) => across(row) > 0);
  if (drawn.length === 0) return null;
  const [range] = family.ranges;
  const ends = single ? range.slice(1) : [Math.min(...drawn.map(across)) / 1.3, Math.max(...drawn.map(across)) * 1.3];
  const roof = single ? family.roofline.filter(([, us]) => us > 0) : ends.map((us) => [us, us]);
  let points = [];
  const draw = (width) => {
    const strip = single ? 30 : 0;
    const frame = new Frame(width, 330 + strip, {left: 58, right: 14, top: 26 + strip, bottom: 42});
    const x = logarithmic(ends, [frame.left, frame.right]);
    const times = [...drawn.flatMap((row) => [servedUs(row), row.best_us]), ...roof.map(([, us]) => us)];
    const y = logarithmic([Math.min(...times) / 1.1, Math.max(...times) * 1.15], [frame.bottom, frame.top]);
    frame.yAxis(y, tickText, "µs").xAxis(x, tickText, single ? range[0] : "µs of the roofline");
    if (single) {
      frame.add(label(frame.left - 7, 21, "kernel", "tick", "end"));
      family.bands.forEach(([first, kernel], i) => {
        const next = i + 1 < family.bands.length ? family.bands[i + 1][0] : range[2];
        const [from, to] = [x(first), x(next)];
        if (kernel === null) return;
        frame.add(svg("rect", {x: from, y: 8, width: Math.max(0.5, to - from), height: 18, class: "column " + kernelKind(kernel)}),
          to - from > 15 ? label((from + to) / 2, 21, String(kernel + 1), "tick strong", "middle") : null);
      });
    }
    frame.add(svg("polyline", {points: roof.map(([at, us]) => `${x(at).toFixed(1)},${y(us).toFixed(1)}`).join(" "), class: "roof open"}));
    points = drawn.map((row) => ({x: x(across(row)), y: y(servedUs(row)), row}));
    for (const {x: at, y: height, row} of points) {
      const best = y(row.best_us);
      if (best - height > 5) frame.add(line(at, height, at, best, "whisker thin"), line(at - 3, best, at + 3, best, "whisker thin"));
      frame.add(rowMark(row, at, height, kernelKind(row.kernel)));
    }
    return frame.root;
  };
  const element = figure({
    name: single ? `Time by ${range[0]}` : "Time by roofline",
    caption: `The time of the kernel that serves each measured size${single ? ", the kernels above" : ", against the least time that memory and arithmetic need"}. The line is the roofline; a whisker reaches down to the best found. ${marksText(family)}`,
    draw, after: (one) => explorable(one, points, {lines: ({row}) => rowLines(family, row)}),
    table: {head: [...family.ranges.map(([name]) => name), "kernel", "time", "best found", "slower by", "roofline", "size"],
      rows: () => served.map((row) => [...row.sizes, row.kernel + 1, formatUs(servedUs(row)), formatUs(row.best_us), formatPercent(100 * row.regret),
        formatUs(row.roofline_us), rowWords(row)])},
  });
  if (single) element.classList.add("wide");
  return element;
}

/// The kernels over the first two ranges.
function familyMap(family, served) {
  if (!family.map) return null;
  const [across, up] = family.ranges;
  const {cells, fixed} = family.map;
  let points = [];
  const draw = (width) => {
    const frame = new Frame(width, 330, {left: 58, right: 14, top: 26, bottom: 42});
    const x = logarithmic(across.slice(1), [frame.left, frame.right]);
    const y = logarithmic(up.slice(1), [frame.bottom, frame.top]);
    const [wide, high] = [(frame.right - frame.left) / cells[0].length, (frame.bottom - frame.top) / cells.length];
    const longest = new Map();
    cells.forEach((row, i) => {
      for (const run of row.matchAll(/([A-Z])\1*/g)) {
        const kernel = run[1].charCodeAt(0) - 65;
        const box = {x: frame.left + wide * run.index, y: frame.bottom - high * (i + 1), width: wide * run[0].length, height: high};
        frame.add(svg("rect", {...box, class: "cell " + kernelKind(kernel)}));
        if (box.width > (longest.get(kernel)?.width ?? 15)) longest.set(kernel, box);
      }
    });
    frame.yAxis(y, tickText, up[0]).xAxis(x, tickText, across[0]);
    points = served.map((row) => ({x: x(row.sizes[0]), y: y(row.sizes[1]), row}));
    for (const point of points) frame.add(rowMark(point.row, point.x, point.y, "ink"));
    for (const [kernel, box] of longest) frame.add(label(box.x + box.width / 2, box.y + box.height / 2 + 4, String(kernel + 1), "tick strong", "middle"));
    return frame.root;
  };
  const counts = new Map();
  for (const cell of cells.join("")) counts.set(cell, (counts.get(cell) || 0) + 1);
  return figure({
    name: `Kernels by ${across[0]} and ${up[0]}`,
    caption: `The kernel that serves each size${fixed.length > 0 ? `, with ${fixed.map(([name, size]) => `${name}=${size}`).join(", ")}` : ""}; empty where there is no problem or no kernel. Marks are the measured sizes. ${marksText(family)}`,
    draw, after: (one) => explorable(one, points, {lines: ({row}) => rowLines(family, row)}),
    table: {head: ["kernel", "template", "configuration", "share of the sizes"],
      rows: () => family.kernels.map((kernel, i) => [i + 1, kernel.template, configurationText(kernel.configuration),
        formatPercent(100 * (counts.get(String.fromCharCode(65 + i)) || 0) / cells.join("").length)])},
  });
}

/// How much slower than the best found the family is, and of one range each of its kernels.
function familyRegret(family, served) {
  const single = family.ranges.length === 1;
  const [range] = family.ranges;
  const {p95, sizes} = family.regret;
  const far = Math.max(0.1, Math.min(0.6, 1.15 * Math.max(p95, ...served.map((row) => row.regret))));
  let points = [];
  const draw = (width) => {
    const frame = new Frame(width, 270, {left: 58, right: 14, top: 26, bottom: 42});
    const x = logarithmic(range.slice(1), [frame.left, frame.right]);
    const y = linear([0, 100 * far], [frame.bottom, frame.top]);
    frame.yAxis(y, (value) => `${value} %`, "slower").xAxis(x, tickText, range[0]);
    if (single) {
      family.kernels.forEach((_, kernel) => {
        let path = "";
        let pen = "M";
        for (const row of served) {
          const slower = row.us[kernel] === null ? Infinity : row.us[kernel] / row.best_us - 1;
          if (slower <= far) path += `${pen}${x(row.sizes[0]).toFixed(1)} ${y(100 * slower).toFixed(1)}`;
          pen = slower <= far ? "L" : "M";
        }
        if (path) frame.add(svg("path", {d: path, class: "trace faint own " + kernelKind(kernel)}));
      });
    }
    if (sizes > 0 && p95 <= far) {
      frame.add(line(frame.left, y(100 * p95), frame.right, y(100 * p95), "guide"),
        label(frame.right, y(100 * p95) - 5, `the bound of 95 % of sizes, ${formatPercent(100 * p95)}`, "tick", "end"));
    }
    points = served.map((row) => ({x: x(row.sizes[0]), y: y(100 * Math.min(far, row.regret)), row}));
    for (const point of points) frame.add(rowMark(point.row, point.x, point.y, kernelKind(point.row.kernel)));
    return frame.root;
  };
  const element = figure({
    name: `Regret by ${range[0]}`,
    caption: `How much slower than the best found the kernel is that serves each measured size${single ? "; thin lines are the family's kernels" : ""}. ${marksText(family)}${
      served.some((row) => row.regret > far) ? ` Marks at the upper end are slower by more.` : ""}`,
    draw, after: (one) => explorable(one, points, {lines: ({row}) => rowLines(family, row)}),
    table: {head: [...family.ranges.map(([name]) => name), "slower by", "size", ...family.kernels.map((_, i) => `kernel ${i + 1}`)],
      rows: () => served.map((row) => [...row.sizes, formatPercent(100 * row.regret), rowWords(row), ...row.us.map((us) => (us === null ? "–" : formatUs(us)))])},
  });
  element.classList.add("wide");
  return element;
}

const boundText = ({regret}) => (regret.sizes === 0 ? "regret not measured"
  : `within ${formatPercent(100 * regret.p95)} of the best found at 95 % of sizes`);

function familySummary(family) {
  const {regret} = family;
  const facts = [["tried", plural(family.tried, "kernel", "kernels")], ["measured at", plural(family.rows.length, "size", "sizes")],
    ["took", formatSeconds(family.wall_seconds)], ["device", `${family.device} (${family.sku}, ${family.target})`],
    ["made", family.created.replace("T", " ").replace("Z", " UTC")]];
  return html("div", {class: "summary"},
    html("p", {class: "words"}, regret.sizes === 0 ? "The regret was not measured. "
      : `At ${plural(regret.sizes, "size", "sizes")} that the table was not made from its kernels are slower than the best found by ${
        formatPercent(100 * regret.median)} at the median, by ${formatPercent(100 * regret.p95)} or less at 95 %, and by ${formatPercent(100 * regret.worst)} at most. `,
      html("span", {class: "soft"}, "trust ", chip(family.trust))),
    html("ol", {class: "kernels mono"}, family.kernels.map((kernel, i) => html("li", {},
      html("i", {class: "dot " + kernelKind(i)}), html("b", {}, `${i + 1} ${kernel.template}`), " ", configurationText(kernel.configuration)))),
    html("dl", {class: "inline"}, facts.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value)))),
    family.ranges ? null : html("p", {class: "note"}, "Nothing is drawn: its operation, of a folder of templates, was not there when this was written."));
}

function familyDetail(family) {
  const served = family.rows.filter((row) => row.kernel !== undefined)
    .sort((a, b) => a.sizes.map((size, i) => size - b.sizes[i]).find((difference) => difference !== 0) || 0);
  const pictures = family.ranges && served.length > 0
    ? [familyTimes, familyMap, familyRegret].map((picture) => picture(family, served)) : [];
  return html("div", {class: "grid"}, familySummary(family), pictures);
}

/// All families, each folded unless it is the only thing here.
function familySection() {
  if (families.length === 0) return null;
  const alone = families.length === 1 && problems.length === 0;
  return html("section", {id: "families"}, html("h2", {}, "Families of sizes"), families.map((family) => {
    const fold = html("details", {class: "family", open: alone, ontoggle: () => {
      if (fold.open && fold.children.length === 1) fold.append(familyDetail(family));
    }}, html("summary", {}, problemText(family.problem), html("span", {class: "soft"},
      ` ${plural(family.kernels.length, "kernel", "kernels")}, ${boundText(family)}`)));
    if (alone) fold.append(familyDetail(family));
    return fold;
  }));
}
