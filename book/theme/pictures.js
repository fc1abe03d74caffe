// Puts pictures into the page, so that `currentColor` is the colour of its theme.
// A picture that can't be fetched, as on a page opened from a file, stays an image.
for (const image of document.querySelectorAll('.content img[src$=".svg"]')) {
    fetch(image.src)
        .then((answer) => (answer.ok ? answer.text() : Promise.reject(answer.status)))
        .then((text) => {
            const picture = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
            if (picture.nodeName !== "svg") return;
            picture.classList.add("picture");
            picture.setAttribute("role", "img");
            picture.setAttribute("aria-label", image.alt);
            image.replaceWith(document.adoptNode(picture));
        })
        .catch(() => {});
}

// A screenshot that has a dark form is shown in it if the theme of the book is dark, whatever the system prefers.
function matchScreenshots() {
    const theme = document.documentElement.classList;
    const dark = ["navy", "coal", "ayu"].some((name) => theme.contains(name));
    for (const source of document.querySelectorAll(".content picture > source[data-dark]")) {
        const narrow = source.dataset.dark === "narrow" ? " and (max-width: 600px)" : "";
        source.media = dark ? "all" + narrow : "not all";
    }
}
matchScreenshots();
new MutationObserver(matchScreenshots).observe(document.documentElement, { attributeFilter: ["class"] });
