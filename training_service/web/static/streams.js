// Streams of events that pause while the page is in the background: a browser has only six connections to a site.
"use strict";

// Like an EventSource. When the page becomes visible again, the parameter `key` of the URL has the id of the last
// event that the page got.
class PausingStream {
  #url;
  #key;
  #listeners = [];
  #source = null;
  #ended = false;

  constructor(url, key = "seen") {
    this.#url = new URL(url, location.href);
    this.#key = key;
    document.addEventListener("visibilitychange", this.#look);
    this.#look();
  }

  get readyState() {
    if (this.#ended) return EventSource.CLOSED;
    return this.#source ? this.#source.readyState : EventSource.CONNECTING;
  }

  addEventListener(name, listener) {
    const heard = (event) => {
      if (event.lastEventId) this.#url.searchParams.set(this.#key, event.lastEventId);
      listener(event);
    };
    this.#listeners.push([name, listener, heard]);
    this.#source?.addEventListener(name, heard);
  }

  removeEventListener(name, listener) {
    for (const [known, its, heard] of this.#listeners) {
      if (known === name && its === listener) this.#source?.removeEventListener(name, heard);
    }
    this.#listeners = this.#listeners.filter(([known, its]) => known !== name || its !== listener);
  }

  close() {
    this.#ended = true;
    document.removeEventListener("visibilitychange", this.#look);
    this.#pause();
  }

  #look = () => {
    if (document.hidden) this.#pause();
    else if (!this.#source && !this.#ended) this.#connect();
  };

  #pause() {
    this.#source?.close();
    this.#source = null;
  }

  #connect() {
    const source = (this.#source = new EventSource(this.#url));
    source.onopen = (event) => this.onopen?.(event);
    source.onerror = (event) => {
      if (source.readyState === EventSource.CLOSED) {
        this.close(); // the service refused the stream
        this.#askWhy();
      }
      this.onerror?.(event);
    };
    for (const [name, , heard] of this.#listeners) source.addEventListener(name, heard);
  }

  // A browser does not say why a stream was refused. If the session has ended, the page loads again, and so leads to
  // the login.
  async #askWhy() {
    const question = new AbortController();
    try {
      const answer = await fetch(this.#url, { headers: { accept: "text/event-stream" }, signal: question.signal });
      if (answer.status === 401) location.reload();
    } catch {
      // The service is away.
    }
    question.abort();
  }
}
