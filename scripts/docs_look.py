#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads each page of the site in a headless Chromium, on wide and narrow screens, light and dark, and checks what a reader would see.

    docs_look.py build/docs/html [PICTURES]

A page fails if it is wider than the screen, if a picture of it is not shown, if it has no title, if its background is not of the scheme, if its text has too little contrast with what is behind
it, or if a script of it fails. With PICTURES, a folder, it writes pictures of SHOWN pages there."""
import html
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

SCREENS = {"wide": (1440, 900), "narrow": (390, 844)}
SCHEMES = {"dark": 0, "light": 1}  # preferredColorScheme of Blink
SHOWN = ("index.html", "docs/transfers.html", "docs/layouts.html", "docs/reliability.html", "docs/store.html", "reference/c/index.html", "reference/python/kvmem.html")
SECONDS = 570

# In one document: frames of the size of the screen show one page after the other. It reads them, which Chromium permits with --disable-web-security.
PROGRAM = """<!doctype html><title>look</title><body><pre id="found"></pre><script>
const pages = %(pages)s, [width, height] = %(size)s, found = [];
if (matchMedia('(prefers-color-scheme: dark)').matches !== %(dark)s) found.push('the colour scheme is not the one that was asked for');
const numbers = color => (color.match(/[\\d.]+/g) || []).map(Number);
const light = color => numbers(color).slice(0, 3).map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
function behind(view, element) {
    for (; element; element = element.parentElement) {
        const style = view.getComputedStyle(element), color = numbers(style.backgroundColor);
        if (style.backgroundImage !== 'none') return null;
        if (color.length === 3 || color[3] > 0.9) return `rgb(${color})`;
    }
    return 'rgb(255, 255, 255)';
}
function look(page, frame, errors) {
    const view = frame.contentWindow, root = view.document;
    const tell = words => found.push(`${page}: ${words}`);
    errors.forEach(tell);
    if (!root.title.trim()) tell('no title');
    const page_is_dark = light(behind(view, root.body) || 'rgb(0, 0, 0)') < 0.2;
    if (page_is_dark !== %(dark)s) tell(`its background is ${page_is_dark ? 'dark' : 'light'}`);
    const wide = root.scrollingElement.scrollWidth;
    if (wide > width) tell(`${wide} pixels wide on a screen of ${width}`);
    for (const image of root.images)
        if (image.checkVisibility() && image.naturalWidth === 0) tell(`the picture ${image.getAttribute('src')} is not shown`);
    for (const element of root.querySelectorAll('h1, h2, p, li, td, th, pre, code')) {
        const text = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join('');
        const background = behind(view, element);
        if (!text || !background || !element.checkVisibility()) continue;
        const [a, b] = [light(view.getComputedStyle(element).color), light(background)];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 3) { tell(`<${element.localName}> '${text.slice(0, 40)}' has a contrast of ${contrast.toFixed(1)}`); break; }
    }
}
// Each page is begun while the one before it ends, so that this document has not loaded, and is not written, before the last one has.
function show(at) {
    if (at === pages.length) {
        document.getElementById('found').textContent = JSON.stringify({looked: at, found});
        return;
    }
    const frame = document.createElement('iframe'), errors = [];
    Object.assign(frame, {width, height, src: pages[at]});
    frame.onload = () => {
        look(pages[at], frame, errors);
        show(at + 1);
        frame.remove();
    };
    document.body.append(frame);
    frame.contentWindow.addEventListener('error', event => errors.push(`a script failed: ${event.message}`));
}
show(0);
</script>"""


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        sys.exit("docs_look.py: there is no Chromium on this machine")
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html") if is_read(page))
    if not pages:
        sys.exit(f"docs_look.py: {site} has no pages; make docs writes them")
    failed = 0
    for (screen, size), (scheme, number) in itertools.product(SCREENS.items(), SCHEMES.items()):
        result = looked(browser, site, pages, size, scheme, number)
        failed += len(result["found"])
        print(f"docs_look.py: {screen}, {scheme}: {result['looked']} pages, {len(result['found'])} found")
        for words in result["found"]:
            print(f"    {words}")
        if len(sys.argv) > 2:
            pictures(browser, site, pathlib.Path(sys.argv[2]), (screen, size), (scheme, number))
    sys.exit(1 if failed else 0)


def is_read(page):
    """Not an index for the search of a site, nor a page that only names another one."""
    return page.parent.name != "search" and "http-equiv=\"refresh\"" not in page.read_text()


def looked(browser, site, pages, size, scheme, number):
    program = PROGRAM % {"pages": json.dumps(pages), "size": list(size), "dark": "true" if scheme == "dark" else "false"}
    name = site / f"look-{scheme}-{size[0]}.html"
    name.write_text(program)
    try:
        width, height = (side + 100 for side in size)
        text = chromium(browser, number, f"--window-size={width},{height}", "--disable-web-security", "--allow-file-access-from-files", f"--timeout={SECONDS * 1000}",
                        "--dump-dom", name.as_uri())
    finally:
        name.unlink()
    found = text.partition('<pre id="found">')[2].partition("</pre>")[0]
    return json.loads(html.unescape(found)) if found else {"looked": 0, "found": ["the browser has not ended"]}


def pictures(browser, site, folder, screen, scheme):
    folder.mkdir(parents=True, exist_ok=True)
    for page in SHOWN:
        to = folder.resolve() / f"{page.replace('/', '-').removesuffix('.html')}-{screen[0]}-{scheme[0]}.png"
        chromium(browser, scheme[1], "--window-size={},{}".format(*screen[1]), "--hide-scrollbars", f"--screenshot={to}", (site / page).as_uri())


def chromium(browser, scheme, *arguments):
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", f"--blink-settings=preferredColorScheme={scheme}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


if __name__ == "__main__":
    main()
