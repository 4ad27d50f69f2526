// Follows a log, keeps its end in sight, and limits the number of lines in the page.
"use strict";

(() => {
  const log = document.getElementById("log");
  const follow = document.getElementById("follow");
  const MOST = 20000;

  function toEnd() {
    log.scrollTop = log.scrollHeight;
  }

  // Times are shown in the reader's zone, and are in UTC in addresses.
  const two = (number, digits = 2) => String(number).padStart(digits, "0");
  function local(time) {
    const at = new Date(time);
    return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
  }
  for (const link of log.querySelectorAll(".line > a")) link.textContent = local(link.title) + link.textContent.slice(12);

  function line([time, rank, text]) {
    const element = document.createElement("span");
    element.className = "line";
    element.id = `t${time}`;
    const link = document.createElement("a");
    link.href = `${log.dataset.here}&at=${encodeURIComponent(time)}#t${time}`;
    link.title = time;
    link.textContent = local(time) + ("all" in log.dataset ? ` ${rank}` : "");
    element.append(link, text + "\n");
    return element;
  }

  document.getElementById("wrap").addEventListener("change", (event) => log.classList.toggle("wrap", event.target.checked));

  const target = log.dataset.at && document.getElementById(log.dataset.at);
  if (target) {
    target.classList.add("found");
    target.scrollIntoView({ block: "center" });
  } else if (!location.search.includes("at=")) {
    toEnd();
  }

  const RETRY_MS = 3000;
  const LOST = "The connection to the service is lost. New lines follow once the service answers.";

  // A browser connects again by itself, and sends the position of its last line. If the service has refused the
  // connection, the browser does not, so this function connects again.
  function connect(url) {
    const source = new PausingStream(url, "position");
    const status = document.getElementById("log-status");
    let position = "";
    source.addEventListener("open", () => {
      if (status.textContent === LOST) status.textContent = "";
    });
    source.addEventListener("error", () => {
      status.textContent = LOST;
      if (source.readyState !== EventSource.CLOSED) return;
      const again = new URL(url, location);
      if (position) again.searchParams.set("position", position);
      setTimeout(connect, RETRY_MS, again.href);
    });
    source.addEventListener("lines", (event) => {
      position = event.lastEventId;
      log.append(...JSON.parse(event.data).map(line));
      for (let extra = log.childElementCount - MOST; extra > 0; extra--) log.firstElementChild.remove();
      if (follow.checked) toEnd();
    });
    source.addEventListener("problem", (event) => {
      status.textContent = JSON.parse(event.data);
      source.close();
    });
    source.addEventListener("end", () => {
      status.textContent = "The attempt has ended; the log is complete.";
      source.close();
    });
  }

  if (log.dataset.follow) {
    connect(log.dataset.follow);
    log.addEventListener("wheel", (event) => event.deltaY < 0 && (follow.checked = false), { passive: true });
    follow.addEventListener("change", () => follow.checked && toEnd());
  }
})();
