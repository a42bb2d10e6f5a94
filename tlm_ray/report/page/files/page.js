"use strict";
// The page is complete without this script, which sorts and filters trials and highlights the lines of a row.
const cells = row => [...row.cells].map(cell => cell.textContent);
const order = (a, b) => isNaN(a) ? a.localeCompare(b) : a - b;  // of two words or two numbers
const press = (element, action) => {
  const button = document.createElement("button");  // within it, because a heading and an entry keep their own roles
  button.type = "button";
  button.append(...element.childNodes);
  button.addEventListener("click", action);
  element.append(button);
  return button;
};

function sorts(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => press(head, () => {
    const up = head.getAttribute("aria-sort") !== "ascending", sign = up ? 1 : -1;
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const known = [...body.rows].map(row => [cells(row)[column], row]);
    // words among numbers, such as failed, stay below them in both directions
    const rank = ([a], [b]) => (a === "–") - (b === "–") || isNaN(a) - isNaN(b) || sign * order(a, b);
    body.append(...known.sort(rank).map(pair => pair[1]));
  }));
}

function keeps(terms, heads, texts) {
  return terms.every(term => {
    const [, name, sign, value] = term.match(/^(.+?)([=<>])(.*)$/) || [];
    const column = heads.indexOf(name);
    if (column < 0) return texts.some(text => text.toLowerCase().includes(term.toLowerCase()));
    const text = texts[column], difference = Number(text) - Number(value);
    return sign === "=" ? text === value || difference === 0 : sign === "<" ? difference < 0 : difference > 0;
  });
}

function filters(field, table) {
  const heads = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
  field.parentElement.hidden = false;
  field.addEventListener("input", () => {
    const terms = field.value.split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) row.hidden = !keeps(terms, heads, cells(row));
  });
}

function picks(section) {
  const entries = [...section.querySelectorAll("[data-series]")];
  const buttons = entries.map((entry, place) => press(entry, () => {
    const on = buttons[place].getAttribute("aria-pressed") !== "true", series = entry.dataset.series;
    buttons.forEach((other, i) => other.setAttribute("aria-pressed", on && entries[i].dataset.series === series));
    section.classList.toggle("picked", on);
    for (const line of section.querySelectorAll(".series")) line.classList.toggle("on", line.classList.contains(series));
  }));
}

document.querySelectorAll("table.sorts").forEach(sorts);
document.querySelectorAll(".filter input").forEach(field => filters(field, document.querySelector("table.sorts")));
document.querySelectorAll("#learning").forEach(picks);
