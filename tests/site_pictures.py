"""`make site-pictures`: pictures of the documentation site, for CONTRIBUTING.md."""

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from build_site import ROOT, build
from chromium import chromium

PICTURES = {
    "site-home.png": ("index.html", 1280, 900, False),
    "site-reference.png": ("api/runtime.html", 1280, 800, True),
    "site-phone.png": ("own-data.html", 390, 844, False),
}

with TemporaryDirectory() as made, chromium() as browser:
    build(Path(made) / "site")
    for name, (page, width, height, dark) in PICTURES.items():
        scheme = "dark" if dark else "light"
        shown = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
        shown.goto((Path(made) / "site" / page).as_uri())
        shown.wait_for_load_state("networkidle")
        picture = Image.open(BytesIO(shown.screenshot())).convert("RGB")
        picture.save(ROOT / "docs" / name, optimize=True)
        print(name, (ROOT / "docs" / name).stat().st_size)
