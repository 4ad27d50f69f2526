// Small improvements of pages that work without them: times in the reader's zone, running durations, selections.
"use strict";

(() => {
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
  const ofToday = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const ofYear = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
  const older = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

  function short(at) {
    const now = new Date();
    if (at.toDateString() === now.toDateString()) return ofToday.format(at);
    return (at.getFullYear() === now.getFullYear() ? ofYear : older).format(at);
  }

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  function duration(seconds) {
    let rest = Math.max(0, Math.round(seconds));
    const parts = [];
    for (const [unit, size] of UNITS) {
      const number = Math.floor(rest / size);
      rest -= number * size;
      if (number || parts.length) parts.push(`${number} ${unit}`);
      if (parts.length === 2) break;
    }
    return parts.join(" ") || "0 s";
  }

  function showTimes(root) {
    for (const element of root.querySelectorAll("time[datetime]:not([data-shown])")) {
      const at = new Date(element.dateTime);
      element.dataset.shown = "";
      element.title = `${exact.format(at)} (${element.textContent})`;
      element.textContent = short(at);
    }
    tick(root);
    showScrolls();
  }

  // Parts that scroll sideways can be reached with the keyboard.
  function showScrolls() {
    for (const part of document.querySelectorAll(".scroll")) {
      const scrolls = part.scrollWidth > part.clientWidth;
      if (scrolls === part.hasAttribute("tabindex")) continue;
      part.toggleAttribute("tabindex", scrolls);
      if (scrolls) part.tabIndex = 0;
      if (scrolls) part.setAttribute("role", "group");
      else part.removeAttribute("role");
      part.setAttribute("aria-label", "Scrolls sideways");
    }
  }
  addEventListener("resize", showScrolls);

  function tick(root = document) {
    for (const element of root.querySelectorAll("[data-since]")) {
      const text = duration((Date.now() - new Date(element.dataset.since)) / 1000);
      if (element.textContent !== text) element.textContent = text;
    }
  }

  // Filters are folded on small screens.
  const small = matchMedia("(max-width: 48rem)");
  const fold = () => document.querySelectorAll("details.fold").forEach((part) => (part.open = !small.matches));
  small.addEventListener("change", fold);
  fold();

  // Times of forms are in UTC on the server, and in the reader's zone on the page.
  const two = (number) => String(number).padStart(2, "0");
  for (const input of document.querySelectorAll("input[data-moment]")) {
    if (!input.value) continue;
    const at = new Date(`${input.value}Z`);
    input.value = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
  }
  document.addEventListener("formdata", (event) => {
    for (const input of event.target.querySelectorAll("input[data-moment]")) {
      if (input.value) event.formData.set(input.name, new Date(input.value).toISOString());
    }
    if (event.target.method !== "get") return;
    // People send addresses to others, so an address has only the fields that were filled in.
    for (const name of new Set(event.formData.keys())) {
      const values = event.formData.getAll(name).filter((value) => value !== "");
      event.formData.delete(name);
      for (const value of values) event.formData.append(name, value);
    }
  });

  // Selections survive a new version of the list.
  const chosen = new Set();
  function showSelection() {
    const form = document.getElementById("selection");
    if (!form) return;
    for (const box of form.querySelectorAll("input[name=job]")) box.checked = chosen.has(box.value);
    const number = form.querySelectorAll("input[name=job]:checked").length;
    const text = document.getElementById("selected");
    if (text && (number || text.dataset.used)) {
      text.dataset.used = "1";
      text.textContent = number === 1 ? "1 job selected" : `${number} jobs selected`;
    }
    for (const button of form.querySelectorAll(".needs-selection")) button.disabled = !number;
  }

  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.name === "job" && box.type === "checkbox") {
      if (box.checked) chosen.add(box.value);
      else chosen.delete(box.value);
      showSelection();
    }
    if (box.matches("[data-submits]")) box.form.requestSubmit();
  });

  // While the pointer or the focus is on a row of the table, the line of its job is marked.
  for (const [kind, on] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
    document.addEventListener(kind, (event) => {
      const row = event.target.closest?.("tr[data-job]");
      if (row) document.querySelector(`[data-line="${row.dataset.job}"]`)?.classList.toggle("found", on);
    });
  }

  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  document.addEventListener("click", async (event) => {
    const line = event.target.closest("[data-line]");
    if (line) location.href = `/jobs/${line.dataset.line}`;
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
    }
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    showTimes(event.target);
    showSelection();
  });
  document.addEventListener("htmx:sseMessage", (event) => {
    if (event.detail.type !== "changes") return;
    showTimes(document);
    showSelection();
  });
  htmx.createEventSource = (url) => new PausingStream(url);
  // The stream of a page breaks if its replica stops, or if the session ends. The browser then connects again.
  const LOST = "The connection to the service is lost. This page has not changed since then. It updates by itself once the service answers.";
  const problemOf = (event) => event.target.querySelector("[sse-swap=problem]");
  document.addEventListener("htmx:sseError", (event) => {
    const place = problemOf(event);
    if (!place || place.textContent.trim()) return;
    const text = document.createElement("p");
    text.className = "problem lost";
    text.textContent = LOST;
    place.replaceChildren(text);
  });
  document.addEventListener("htmx:sseOpen", (event) => problemOf(event)?.querySelector(".lost")?.remove());
  // The job has ended, so the page needs other buttons and links.
  document.addEventListener("htmx:sseClose", (event) => event.detail.type === "message" && location.reload());
  for (const box of document.querySelectorAll("input[name=job]:checked")) chosen.add(box.value);
  showTimes(document);
  showSelection();
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", () => document.hidden || tick());
})();
