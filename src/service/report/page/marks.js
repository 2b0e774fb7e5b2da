// Scales, axes, figures and the tables behind them.

function linear(domain, range) {
  const [a, b] = domain[0] === domain[1] ? [domain[0] - 1, domain[1] + 1] : domain;
  const scale = (value) => range[0] + ((value - a) / (b - a)) * (range[1] - range[0]);
  scale.invert = (place) => a + ((place - range[0]) / (range[1] - range[0])) * (b - a);
  scale.ticks = (count) => {
    for (let most = count;; most *= 2) {  // one tick alone says nothing of the scale
      const raw = (b - a) / most;
      const power = 10 ** Math.floor(Math.log10(raw));
      const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
      const ticks = [];
      for (let i = Math.ceil(a / step - 1e-9); i * step <= b + 1e-9 * step; ++i) {
        ticks.push(Number((i * step).toPrecision(12)));
      }
      if (ticks.length > 1) return ticks;
    }
  };
  return scale;
}
function logarithmic(domain, range) {
  const within = linear(domain.map(Math.log10), range);
  const scale = (value) => within(Math.log10(value));
  scale.invert = (place) => 10 ** within.invert(place);
  scale.ticks = (count) => {
    const [low, high] = domain;
    const all = (factors) => {
      const ticks = [];
      for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p) {
        for (const factor of factors) {
          const value = factor * 10 ** p;
          if (value >= low * 0.9999 && value <= high * 1.0001) ticks.push(Number(value.toPrecision(6)));
        }
      }
      return ticks;
    };
    const decades = Math.log10(high / low);
    if (decades < 0.35) return linear(domain, range).ticks(count);
    for (const factors of [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
      const ticks = all(factors);
      if (ticks.length <= count + 1) return ticks;
    }
    const ticks = all([1]);
    const every = Math.ceil(ticks.length / (count + 1));
    return ticks.filter((_, i) => i % every === 0);
  };
  return scale;
}

const line = (x1, y1, x2, y2, kind) => svg("line", {x1, y1, x2, y2, class: kind});
const label = (x, y, text, kind = "", anchor = "start") =>
  svg("text", {x, y, class: kind, "text-anchor": anchor}, text);

/// Finds places for texts in a picture, so that none covers another one, a line or a point.
class Places {
  constructor(frame) {
    this.frame = frame;
    this.taken = [];     // texts, each as points along its middle
    this.segments = [];
    this.points = [];
  }
  line(x1, y1, x2, y2) {
    this.segments.push([x1, y1, x2, y2]);
  }
  point(x, y) {
    this.points.push([x, y]);
  }
  /// Points along the middle of a text, as far apart as half of its height.
  static along(text, {x, y, anchor, angle = 0}) {
    const width = 6.1 * text.length;
    const from = {start: 0, middle: -width / 2, end: -width}[anchor];
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const count = Math.max(2, Math.ceil(width / 6));
    return Array.from({length: count + 1}, (_, i) => {
      const along = from + width * i / count;
      return [x + along * cos + 4 * sin, y + along * sin - 4 * cos];
    });
  }
  static distance([x, y], [x1, y1, x2, y2]) {
    const length = (x2 - x1) ** 2 + (y2 - y1) ** 2;
    const share = length === 0 ? 0 : Math.max(0, Math.min(1, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length));
    return Math.hypot(x - x1 - share * (x2 - x1), y - y1 - share * (y2 - y1));
  }
  /// Draws the text at the first of the places where it is free. If none is, it goes where only
  /// lines and points are below it, or, unless it `must` be there, nowhere.
  put(text, kind, places, must) {
    const of = places.map((place) => ({place, along: Places.along(text, place)})).filter(({along}) =>
      along.every(([x, y]) => x >= this.frame.left && x <= this.frame.width && y >= 6 && y <= this.frame.bottom));
    const clear = ({along}) => along.every((at) => this.taken.every((other) => Math.hypot(at[0] - other[0], at[1] - other[1]) > 12));
    const free = ({along}) => along.every((at) => this.segments.every((segment) => Places.distance(at, segment) > 7) &&
      this.points.every((point) => Math.hypot(at[0] - point[0], at[1] - point[1]) > 8));
    const found = of.find((one) => clear(one) && free(one)) || (must ? of.find(clear) : undefined);
    if (!found) return;
    this.taken.push(...found.along);
    const {x, y, anchor, angle = 0} = found.place;
    this.frame.add(svg("text", {x, y, class: kind, "text-anchor": anchor,
      transform: angle ? `rotate(${(angle * 180 / Math.PI).toFixed(2)} ${x} ${y})` : null}, text));
  }
}

/// The frame of a plot: the place of its inside, and axes.
class Frame {
  constructor(width, height, margin) {
    this.width = width;
    this.height = height;
    this.left = margin.left;
    this.right = width - margin.right;
    this.top = margin.top;
    this.bottom = height - margin.bottom;
    this.root = svg("svg", {viewBox: `0 0 ${width} ${height}`, width: "100%", "aria-hidden": "true"});
  }
  add(...marks) {
    this.root.append(...marks.flat(2).filter(Boolean));
    return this;
  }
  xAxis(scale, format, title, ticks) {
    const values = ticks || scale.ticks(Math.max(2, Math.floor((this.right - this.left) / 80)));
    for (const value of values) {
      const x = scale(value);
      if (x < this.left - 0.5 || x > this.right + 0.5) continue;
      this.add(line(x, this.top, x, this.bottom, "grid"),
               label(x, this.bottom + 15, format(value), "tick", "middle"));
    }
    this.add(line(this.left, this.bottom, this.right, this.bottom, "axis"));
    if (title) this.add(label(this.right, this.bottom + 31, title, "title", "end"));
    return this;
  }
  yAxis(scale, format, title) {
    for (const value of scale.ticks(Math.max(2, Math.floor((this.bottom - this.top) / 34)))) {
      const y = scale(value);
      if (y < this.top - 0.5 || y > this.bottom + 0.5) continue;
      this.add(line(this.left, y, this.right, y, "grid"),
               label(this.left - 7, y + 3.5, format(value), "tick", "end"));
    }
    if (title) this.add(label(this.left - 7, this.top - 10, title, "title", "end"));
    return this;
  }
}

/// A figure: a picture that is drawn for its width, what it is called, and its table.
/// `draw(width)` returns an svg; `after(figure)` follows every drawing.
function figure({name, caption, draw, table, controls, after}) {
  const place = html("div", {class: "picture", role: "img", "aria-label": `${name}. ${caption || ""} A table follows.`});
  let drawn = 0;
  const redraw = () => {
    const width = Math.round(place.clientWidth);
    if (width === 0) return;
    drawn = width;
    place.replaceChildren(draw(Math.max(width, 280)));
    if (after) after(element);
  };
  new ResizeObserver(() => {
    if (Math.abs(place.clientWidth - drawn) > 1) redraw();
  }).observe(place);
  place.redraw = (width) => {
    place.replaceChildren(draw(width));
    drawn = 0;
  };
  const element = html("figure", {class: "panel"},
    html("figcaption", {}, html("h3", {}, name), caption ? html("p", {}, caption) : null),
    controls || null, place, table ? behind(name, table) : null);
  element.redraw = redraw;
  element.picture = place;
  return element;
}

// A sheet of paper has room for so much of a picture at the size of the text (A4 and Letter, upright).
const paperWidth = 690;
addEventListener("beforeprint", () => {
  for (const place of document.querySelectorAll(".picture")) place.redraw(paperWidth);
});
addEventListener("afterprint", () => {
  for (const place of document.querySelectorAll(".picture")) place.redraw(Math.max(280, Math.round(place.clientWidth)));
});

/// A table that is folded, made when it is opened first.
function behind(name, {head, rows}) {
  const fold = html("details", {class: "behind", ontoggle: () => {
    if (fold.open && fold.children.length === 1) fold.append(table(name, head, rows()));
  }}, html("summary", {}, "Table", html("span", {class: "unseen"}, ` of ${name}`)));
  return fold;
}
function table(name, head, rows) {
  const numeric = head.map((_, i) => rows.length > 0 && rows.every((row) => /^[–+−\d]/.test(String(row[i] ?? "–"))));
  const cell = (tag, value, i) =>
    html(tag, {class: numeric[i] ? "number" : null, scope: tag === "th" ? "col" : null}, value ?? "–");
  return html("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": name}, html("table", {class: "plain"},
    html("thead", {}, html("tr", {}, head.map((name, i) => cell("th", name, i)))),
    html("tbody", {}, rows.map((row) => html("tr", {}, row.map((value, i) => cell("td", value, i)))))));
}

// The one tooltip.
const tip = document.getElementById("tip");
function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map((text, i) => html("div", {class: i === 0 ? "first" : null}, text)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = Math.max(4, Math.min(y + 12, innerHeight - box.height - 4)) + "px";
}
const hideTip = () => { tip.hidden = true; };

/// Lets points of a picture be found by the mouse and by arrow keys. `points` have x and y in the
/// picture's units; `lines(point)` describes one and `choose(point)` takes it.
function explorable(figureElement, points, {lines, choose}) {
  const place = figureElement.picture;
  const root = place.firstChild;
  const ring = svg("circle", {r: 7, class: "ring", visibility: "hidden"});
  root.append(ring);
  let at = -1;
  const show = (index, clientX, clientY) => {
    at = index;
    const point = points[index];
    ring.setAttribute("cx", point.x);
    ring.setAttribute("cy", point.y);
    ring.setAttribute("visibility", "visible");
    const box = root.getBoundingClientRect();
    const scale = box.width / root.viewBox.baseVal.width;
    showTip(lines(point), clientX ?? box.left + point.x * scale, clientY ?? box.top + point.y * scale);
  };
  const hide = () => {
    at = -1;
    ring.setAttribute("visibility", "hidden");
    hideTip();
  };
  const nearest = (event) => {
    const box = root.getBoundingClientRect();
    const scale = root.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const y = (event.clientY - box.top) * scale;
    let best = -1;
    let distance = 22 * 22;
    points.forEach((point, i) => {
      const d = (point.x - x) ** 2 + (point.y - y) ** 2;
      if (d < distance) [best, distance] = [i, d];
    });
    return best;
  };
  root.addEventListener("pointermove", (event) => {
    const found = nearest(event);
    if (found < 0) hide(); else show(found, event.clientX, event.clientY);
  });
  root.addEventListener("pointerleave", hide);
  root.addEventListener("click", () => { if (at >= 0 && choose) choose(points[at]); });
  place.tabIndex = 0;
  const order = points.map((_, i) => i).sort((a, b) => points[a].x - points[b].x || points[a].y - points[b].y);
  place.onkeydown = (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step && points.length > 0) {
      const now = order.indexOf(at);
      show(order[(now + step + order.length) % order.length]);
      event.preventDefault();
    } else if (event.key === "Enter" && at >= 0 && choose) {
      choose(points[at]);
      event.preventDefault();
    } else if (event.key === "Escape") {
      hide();
    }
  };
  place.onblur = hide;
}

/// A select with a label.
function select(name, options, value, change) {
  return html("label", {class: "select"}, name + " ", html("select", {onchange: (event) => change(event.target.value)},
    options.map(([key, text]) => html("option", {value: key, selected: key === value}, text))));
}
