// Tables that are updated in place. Cells that have not changed stay untouched, so that the focus and the
// selection stay.

import { h, redraw } from "./dom.js";

/**
 * Creates a table.
 *
 * A column is `{name, label, value(item), cell(item), kind}`. `cell` creates the content, and is called again
 * only when the result of `value` changes. `kind` is a class: number, tight, span (the whole width of a card).
 * A column with `rare(item)` is hidden while `rare` returns false for every row.
 * `choose` adds a checkbox to each row: `{chosen, changed(), …}`, where `chosen` is the set of chosen keys.
 */
export function table({ caption, columns, key, empty, choose, rowClass, open }) {
  const all = choose ? [chooser(choose, key), ...columns] : columns;
  const body = h("tbody", { role: "rowgroup" });
  const heads = all.map((column) =>
    h("th", { role: "columnheader", scope: "col", class: column.kind, title: column.title }, column.head ?? column.label));
  const element = h("div", { class: "scroll" },
    h("table", { class: "table cards", role: "table", "aria-label": caption },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), body));
  // Whether the table is empty is known only after the first read.
  const none = h("div", { class: "empty", hidden: true }, empty);
  element.hidden = true;
  const rows = new Map();

  function make(item) {
    const row = { item, cells: [], signs: [], element: h("tr", { role: "row", "data-key": key(item) }) };
    if (open) {
      row.element.addEventListener("dblclick", () => open(row.item));
    }
    for (const column of all) {
      const cell = h("td", { role: "cell", class: column.kind, "data-label": column.label || null });
      row.cells.push(cell);
      row.element.append(cell);
    }
    return row;
  }

  function show(row, item) {
    row.item = item;
    all.forEach((column, at) => {
      const sign = JSON.stringify(column.value(item)) ?? "";
      if (row.signs[at] === sign) return;
      row.signs[at] = sign;
      const content = column.cell(item);
      redraw(row.cells[at], content);
      row.cells[at].classList.toggle("blank", content === null || content === undefined || content === "");
    });
    row.element.classList.toggle("chosen", choose?.chosen.has(key(item)) ?? false);
    if (rowClass) row.element.dataset.look = rowClass(item);
  }

  return {
    element: h("div", null, element, none),
    /** Shows these items in this order. */
    set(items) {
      const keep = new Set(items.map((item) => String(key(item))));
      for (const [id, row] of rows) {
        if (!keep.has(id)) {
          row.element.remove();
          rows.delete(id);
        }
      }
      items.forEach((item, at) => {
        const id = String(key(item));
        let row = rows.get(id);
        if (!row) {
          row = make(item);
          rows.set(id, row);
        }
        show(row, item);
        if (body.children[at] !== row.element) body.insertBefore(row.element, body.children[at] ?? null);
      });
      all.forEach((column, at) => {
        if (!column.rare) return;
        const left = !items.some(column.rare);
        heads[at].hidden = left;
        for (const row of rows.values()) row.cells[at].hidden = left;
      });
      none.hidden = items.length > 0;
      element.hidden = items.length === 0;
    },
    /** Handles a failed read: the rows stay, and the text for an empty table is hidden. */
    failed() {
      none.hidden = true;
    },
    /** Updates one item if it is shown, and returns whether it is shown. */
    patch(id, change) {
      const row = rows.get(String(id));
      if (!row) return false;
      show(row, { ...row.item, ...change });
      return true;
    },
    /** Returns the shown items, in order. */
    items: () => [...body.children].map((one) => rows.get(one.dataset.key).item),
    /** Updates the checkboxes of the chosen rows. */
    mark() {
      for (const row of rows.values()) {
        const chosen = choose.chosen.has(key(row.item));
        row.element.classList.toggle("chosen", chosen);
        const box = row.cells[0].firstElementChild;
        if (box) box.checked = chosen;
      }
    },
    rows: () => [...body.children],
  };
}

function chooser(choose, key) {
  return {
    name: "choose",
    label: "",
    kind: "tight box",
    head: choose.all,
    value: key,
    cell: (item) => h("input", {
      type: "checkbox",
      checked: choose.chosen.has(key(item)),
      "aria-label": `Choose ${choose.describe(item)}`,
      onchange: (event) => {
        if (event.target.checked) choose.chosen.add(key(item));
        else choose.chosen.delete(key(item));
        choose.changed();
      },
    }),
  };
}
