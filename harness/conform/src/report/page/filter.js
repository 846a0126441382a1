"use strict";
// The address contains the filter (#show=fail&text=barrier), so that a filtered page can be linked to. An address without `=` is an anchor,
// whose target is shown regardless of the filter.
(() => {
  const bar = document.querySelector(".filters");
  const show = document.getElementById("show");
  const text = document.getElementById("text");
  const shown = document.getElementById("shown");
  const items = [...document.querySelectorAll("[data-kind]")];
  const words = new Map();
  for (const item of items) {
    const around = item.closest(".requirement");
    const title = around ? around.querySelector("h3").textContent : "";
    words.set(item, (item.textContent + " " + title).toLowerCase());
  }
  const apply = () => {
    const wanted = text.value.trim().toLowerCase();
    let count = 0;
    for (const item of items) {
      const fits = (!show.value || item.dataset.kind === show.value) && words.get(item).includes(wanted);
      item.hidden = !fits;
      count += fits ? 1 : 0;
    }
    for (const around of document.querySelectorAll(".requirement")) {
      around.hidden = !around.querySelector(".cause:not([hidden])");
    }
    shown.textContent = show.value || wanted ? `${count} of ${items.length} shown` : "";
  };
  const read = () => {
    const hash = location.hash.slice(1);
    const filter = new URLSearchParams(hash.includes("=") ? hash : "");
    show.value = filter.get("show") || "";
    if (show.selectedIndex < 0) show.value = "";
    text.value = filter.get("text") || "";
    apply();
    if (hash && !hash.includes("=")) {
      const place = document.getElementById(decodeURIComponent(hash));
      if (place) {
        for (let at = place; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
        place.scrollIntoView();
      }
    }
  };
  const write = () => {
    const filter = new URLSearchParams();
    if (show.value) filter.set("show", show.value);
    if (text.value.trim()) filter.set("text", text.value.trim());
    const hash = filter.toString();
    history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
    apply();
  };
  bar.addEventListener("submit", (event) => event.preventDefault());
  show.addEventListener("change", write);
  text.addEventListener("input", write);
  addEventListener("hashchange", read);
  // Folded sections cannot be opened on paper, so all of them are unfolded for printing.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
  });
  bar.hidden = false;
  read();
})();
