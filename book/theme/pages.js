// Marks what book.css needs to know.

// On a phone, the cells of a row are below each other: each has the title of its column.
for (const table of document.querySelectorAll(".content table")) {
    const titles = [...table.querySelectorAll("thead th")].map((title) => title.textContent.trim());
    const numbers = table.querySelector('th[style*="right"]');
    if (titles.length < 3 || numbers) continue;
    for (const row of table.querySelectorAll("tbody tr")) {
        [...row.cells].forEach((cell, at) => {
            if (at > 0 && titles[at] && cell.textContent.trim()) cell.dataset.head = titles[at];
        });
    }
}

// A line may break between any two signs of code: not in code that fits in one.
const fits = window.innerWidth > 600 ? 40 : 26;
for (const code of document.querySelectorAll(".content :not(pre) > code")) {
    code.classList.toggle("short", code.textContent.length <= fits);
}

// Output of several lines is in columns, or indented.
for (const code of document.querySelectorAll(".content pre > code")) {
    code.classList.toggle("aligned", code.textContent.trimEnd().split("\n").length > 3);
}
