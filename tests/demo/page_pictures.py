"""Takes pictures of the page with the runs of history.py, for the READMEs.

PYTHONPATH=tests/e2e .venv/bin/python tests/demo/page_pictures.py; `make pictures` does it.
"""

from __future__ import annotations

import base64
import io
import os
import pathlib
import sys

import counterweight_rl as cw
from browser import PHONE, Browser, find_driver
from history import MINUTES, RUNS
from PIL import Image
from rollouts import read_steps
from selenium.webdriver.support.ui import WebDriverWait
from server_process import REPOSITORY, ServerProcess

FOLDER = REPOSITORY / "deploy"
PICTURES = (
    ("page.png", (1180, 1010), "light", "asynchronous"),
    ("page_phone.png", PHONE, "dark", "quantized"),
)
COLOURS = 64


def take(browser: Browser, url: str, path: pathlib.Path, run: str) -> None:
    browser.open(f"{url}#{run}")
    WebDriverWait(browser.driver, 60).until(
        lambda driver: driver.execute_script(
            "return document.getElementById('name').textContent === arguments[0]", run
        )
    )
    raw = io.BytesIO(base64.b64decode(browser.driver.get_screenshot_as_base64()))
    with Image.open(raw) as picture:
        picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(f"page_pictures: wrote {path.relative_to(REPOSITORY)}, {path.stat().st_size // 1000} kB")


def main() -> None:
    # All of it is on this machine, and proxies are not for that.
    os.environ["no_proxy"] = "127.0.0.1,localhost"
    driver = find_driver()
    if driver is None:
        sys.exit("page_pictures: chromium is not installed; run .ci/setup browser")
    server = ServerProcess()
    browser = Browser(driver)
    try:
        data = read_steps()
        with cw.Client(server.address) as client:
            for minute in range(MINUTES):
                for run in RUNS:
                    batch = run.batch(minute, data)
                    client.correct(**batch, method=run.method, run=run.name)
        for name, size, scheme, shown in PICTURES:
            browser.show(size, scheme)
            take(browser, server.metrics_url.removesuffix("metrics"), FOLDER / name, shown)
    finally:
        browser.stop()
        server.stop()


if __name__ == "__main__":
    main()
