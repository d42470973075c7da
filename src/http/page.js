"use strict";
// Takes news from the stream of events and puts what is new into the page. Everything is made by the server; this only
// exchanges the parts that differ, so that focus, scrolling and the filter stay.
(() => {
  const live = () => document.getElementById("live");
  const say = (text) => { const at = live(); if (at && at.textContent !== text) at.textContent = text; };

  let state = "connecting…";
  const told = new Map();
  const remember = (root, seen) => {
    for (const part of root.querySelectorAll("[data-part]")) seen.set("p:" + part.dataset.part, part.outerHTML);
    for (const row of root.querySelectorAll("[data-list] > [data-k]")) seen.set("k:" + row.dataset.k, row.outerHTML);
    return seen;
  };
  remember(document, told);

  const exchange = (news) => {
    const focus = document.activeElement;
    const href = focus && focus.matches("a[href]") ? focus.getAttribute("href") : null;
    const seen = remember(news, new Map());
    for (const part of news.querySelectorAll("[data-part]")) {
      const key = "p:" + part.dataset.part;
      const old = document.querySelector('[data-part="' + part.dataset.part + '"]');
      if (!old || told.get(key) === seen.get(key)) continue;
      const { scrollTop, scrollLeft } = old;
      // The element stays, so that a focus on it and its scrolling do.
      old.replaceChildren(...document.importNode(part, true).childNodes);
      old.scrollTop = scrollTop;
      old.scrollLeft = scrollLeft;
    }
    const list = document.querySelector("[data-list]");
    const rows = news.querySelectorAll("[data-list] > [data-k]");
    if (list) {
      const old = new Map();
      for (const row of list.children) old.set(row.dataset.k, row);
      let at = list.firstElementChild;
      for (const row of rows) {
        const key = row.dataset.k;
        let here = old.get(key);
        old.delete(key);
        if (!here || told.get("k:" + key) !== seen.get("k:" + key)) {
          const fresh = document.importNode(row, true);
          if (here) {
            if (here === at) at = fresh;
            here.replaceWith(fresh);
          }
          here = fresh;
        }
        if (here === at) at = at.nextElementSibling;
        else list.insertBefore(here, at);
      }
      for (const row of old.values()) row.remove();
    }
    document.title = news.title;
    told.clear();
    for (const [key, text] of seen) told.set(key, text);
    if (href && document.activeElement === document.body) {
      const again = document.querySelector('a[href="' + CSS.escape(href) + '"]');
      if (again) again.focus({ preventScroll: true });
    }
    say(state);
    begin();
    filter();
  };

  // One request at a time, and no more of them than the page is fast to take.
  let busy = false, again = false;
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    again = false;
    const began = performance.now();
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", credentials: "same-origin" });
      if (answer.ok) exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // The stream tells when the server is back.
    }
    const pause = Math.max(400, 4 * (performance.now() - began));
    setTimeout(() => { busy = false; if (again) refresh(); }, pause);
  };

  const two = (n, unit, m, small) => n + unit + (m ? " " + m + small : "");
  const age = (s) => s < 60 ? s + "s" : s < 3600 ? two(Math.floor(s / 60), "m", s % 60, "s")
    : s < 172800 ? two(Math.floor(s / 3600), "h", Math.floor(s % 3600 / 60), "m") : Math.floor(s / 3600) + "h";
  const begin = () => {
    for (const tick of document.querySelectorAll("[data-tick]:not([data-from])")) tick.dataset.from = performance.now();
  };
  begin();
  setInterval(() => {
    if (document.hidden) return;
    for (const tick of document.querySelectorAll("[data-tick]")) {
      tick.textContent = age(Number(tick.dataset.tick) + Math.floor((performance.now() - tick.dataset.from) / 1000));
    }
  }, 1000);

  const box = document.getElementById("filter");
  const filter = () => {
    if (!box) return;
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0, all = 0;
    for (const row of document.querySelectorAll("[data-list] > [data-k]")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      all += 1;
      if (!row.hidden) count += 1;
    }
    document.getElementById("shown").textContent = words.length ? count + " of " + all : "";
  };
  if (box) {
    box.closest(".filter").hidden = false;
    box.addEventListener("input", filter);
    filter();
  }

  const event = document.body.dataset.event;
  if (event === undefined) { setTimeout(() => location.reload(), 1000); return; }
  const stream = new EventSource("/api/v1/events?from=" + encodeURIComponent(event));
  stream.addEventListener("open", () => { state = "live"; say(state); });
  stream.addEventListener("error", () => { state = "connection lost, trying again…"; say(state); });
  stream.addEventListener("status", refresh);
  stream.addEventListener("snapshot", refresh);
  // Output grows without an event.
  if (document.querySelector('[data-part="log"]')) {
    setInterval(() => { if (!document.hidden && document.querySelector("[data-tick]")) refresh(); }, 3000);
  }
})();
