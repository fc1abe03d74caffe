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
