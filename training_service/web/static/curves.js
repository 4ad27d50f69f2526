// Draws the metrics of jobs with uPlot: one picture for each name, and one line for each job.
"use strict";

(() => {
  const root = document.getElementById("curves");
  const controls = document.getElementById("curve-controls");
  const jobs = root.dataset.jobs.split(",");
  const fixed = ["#2059a8", "#b4552d", "#1e7a5a", "#8a4fb0", "#a07a00", "#0f8296", "#b03a6e", "#5c6b2f", "#5b6570", "#7a3b1d"];
  const dark = ["#7db1f0", "#f0a27d", "#7dd3b0", "#c9a0e6", "#e3c069", "#74d0de", "#ee9bbf", "#b8c98a", "#b3bcc5", "#d3a184"];
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const plots = new Map();
  const MOST = 48;
  const FEW = 40;
  const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 4 });
  let data = new Map();

  const text = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function smoothed(values, weight) {
    if (!weight) return values;
    let last = 0, whole = 0;
    return values.map((value) => {
      if (value === null) return null;
      last = last * weight + value * (1 - weight);
      whole = whole * weight + (1 - weight);
      return last / whole;
    });
  }

  function places(series, over) {
    if (over === "step") return series.steps;
    if (over === "time") return series.times;
    return series.times.map((at) => at - series.times[0]);
  }

  // uPlot needs places in ascending order. If an attempt went back, its later points replace the earlier ones.
  function ordered(series, over, weight) {
    const at = places(series, over);
    if (at.every((place, i) => i === 0 || at[i - 1] < place)) return [at, smoothed(series.values, weight)];
    const points = new Map();
    for (let i = 0; i < at.length; i++) points.set(at[i], series.values[i]);
    const keys = [...points.keys()].sort((a, b) => a - b);
    return [keys, smoothed(keys.map((key) => points.get(key)), weight)];
  }

  function options(labels, counts, over, isLog, width) {
    const colors = scheme.matches ? dark : fixed;
    const axis = { stroke: text("--muted"), grid: { stroke: text("--line"), width: 1 }, ticks: { stroke: text("--line"), width: 1 } };
    return {
      width, height: 220, legend: { live: true }, cursor: { sync: { key: "curves" }, drag: { x: true, y: false } },
      scales: { x: { time: over === "time" }, y: { distr: isLog ? 3 : 1 } },
      axes: [{ ...axis }, { ...axis, size: 60, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : compact.format(tick))) }],
      series: [
        { label: over === "since" ? "seconds" : over },
        ...labels.map((label, i) => ({ label, stroke: colors[i % colors.length], width: 1.5, spanGaps: false, points: { show: counts[i] <= FEW, size: 5 } })),
      ],
    };
  }

  function draw() {
    performance.mark("draw");
    const fields = new FormData(controls);
    const over = fields.get("over"), weight = Number(fields.get("smooth")), isLog = fields.get("log") !== null;
    const find = (fields.get("find") || "").toLowerCase();
    const names = new Set();
    for (const list of data.values()) for (const series of list) names.add(series.name);
    root.setAttribute("aria-busy", "false");
    for (const plot of plots.values()) plot.destroy();
    plots.clear();
    root.replaceChildren();
    for (const name of [...names].sort()) {
      if (!name.toLowerCase().includes(find)) continue;
      if (plots.size === MOST) {
        const rest = document.createElement("p");
        rest.className = "muted";
        rest.textContent = `There are more than ${MOST} metrics. Enter a part of a name to see others.`;
        root.append(rest);
        break;
      }
      const lines = [], labels = [];
      let gaps = 0;
      for (const [job, list] of data) {
        const series = list.find((each) => each.name === name);
        if (!series) continue;
        gaps += series.gaps;
        const [at, values] = ordered(series, over, weight);
        lines.push([at, isLog ? values.map((value) => (value > 0 ? value : null)) : values]);
        labels.push(jobs.length > 1 ? `job ${job}` : name);
      }
      const figure = document.createElement("section");
      figure.className = "curve";
      const title = document.createElement("h3");
      title.textContent = name;
      const place = document.createElement("div");
      place.className = "plot";
      place.setAttribute("role", "img");
      const last = lines.map(([, values], i) => `${labels[i]} ends at ${values.findLast((value) => value !== null)}`);
      place.setAttribute("aria-label", `${name}: ${last.join(", ")}`);
      figure.append(title, place);
      if (gaps) {
        const note = document.createElement("p");
        note.className = "hint";
        note.textContent = `${gaps} values are not finite, and are left out.`;
        figure.append(note);
      }
      root.append(figure);
      const width = Math.max(260, place.clientWidth);
      const joined = lines.length === 1 ? lines[0] : uPlot.join(lines);
      plots.set(name, new uPlot(options(labels, lines.map(([at]) => at.length), over, isLog, width), joined, place));
    }
    for (const link of document.querySelectorAll("[data-export]")) {
      const to = new URL(link.href);
      to.searchParams.set("find", find);
      link.href = to;
    }
    // Measure until the end of the frame in which the browser paints the curves.
    requestAnimationFrame(() => setTimeout(() => performance.measure("curves", "draw")));
    if (!root.childElementCount) {
      const empty = document.createElement("p");
      empty.className = "muted";
      empty.textContent = names.size ? "The name of no metric has this text." : "No metrics were reported yet.";
      root.append(empty);
    }
  }

  // The service sends this many series at once, sorted by name. A page has at most MOST of them.
  const AT_ONCE = 8;
  let asked = "", isWhole = false;

  async function read(job) {
    const found = [];
    for (let more = true; more && found.length <= MOST; ) {
      const query = new URLSearchParams({ find: asked, after: found.at(-1)?.name ?? "" });
      const part = await ask(`/jobs/${job}/series?${query}`);
      found.push(...part);
      more = part.length === AT_ONCE;
    }
    return [job, found];
  }

  async function ask(url) {
    const answer = await fetch(url, { headers: { "hx-request": "true" } });
    if (answer.ok) return answer.json();
    const text = new DOMParser().parseFromString(await answer.text(), "text/html").body.textContent.trim();
    throw new Error(text || `HTTP ${answer.status}`);
  }

  async function load() {
    let problem = "";
    asked = new FormData(controls).get("find") || "";
    try {
      data = new Map(await Promise.all(jobs.map(read)));
      isWhole = !asked && [...data.values()].every((list) => list.length <= MOST);
    } catch (error) {
      problem = error instanceof TypeError ? "The service does not answer." : error.message;
    }
    document.getElementById("curves-problem").textContent = problem;
    if (!problem || data.size) draw();
    else root.replaceChildren();
  }

  let waiting = 0;
  const later = (work, ms) => { clearTimeout(waiting); waiting = setTimeout(work, ms); };
  // The address has the chosen values, so that people can send a view to others.
  const chosen = new URLSearchParams(location.search);
  for (const input of controls.elements) {
    if (!input.name || !chosen.has(input.name)) continue;
    if (input.type === "checkbox") input.checked = true;
    else input.value = chosen.get(input.name);
  }
  function remember() {
    const query = new URLSearchParams(location.search);
    for (const input of controls.elements) {
      if (!input.name) continue;
      query.delete(input.name);
      const isDefault = input.type === "checkbox" ? !input.checked : input.value === input.dataset.default;
      if (!isDefault) query.set(input.name, input.value);
    }
    history.replaceState(null, "", `${location.pathname}${query.size ? "?" : ""}${query}`);
  }
  const names = (event) => event.target.name === "find" && !isWhole;
  controls.addEventListener("input", (event) => {
    remember();
    if (names(event)) later(load, 300);
    else later(draw, 50);
  });
  controls.addEventListener("submit", (event) => event.preventDefault());
  scheme.addEventListener("change", draw);
  addEventListener("resize", () => later(draw, 150));
  if (root.dataset.live) {
    const source = new PausingStream(root.dataset.live);
    source.addEventListener("report", load);
    source.addEventListener("open", () => data.size || load());
    source.addEventListener("end", () => source.close());
  }
  load();
})();
