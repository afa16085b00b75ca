"""Debian's Chromium without a window."""

from __future__ import annotations

import shutil
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new",
    # Containers and root have no sandbox, and the pages are ours.
    "--no-sandbox",
    "--disable-gpu",
    # Its shared memory may be small in a container.
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--lang=en-US",
)
WIDE = (1280, 1500)
PHONE = (390, 844)


def find_driver() -> str | None:
    """The path of the program that drives Chromium."""
    return shutil.which("chromedriver") if shutil.which("chromium") else None


class Browser:
    """One tab."""

    def __init__(self, driver: str) -> None:
        """Starts Chromium."""
        options = Options()
        options.binary_location = str(shutil.which("chromium"))
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))

    def open(self, url: str) -> None:
        self.driver.get(url)

    def show(self, size: tuple[int, int] = WIDE, scheme: str = "light") -> None:
        """A screen of this size in pixels; scheme "light" or "dark"."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {
                "width": size[0],
                "height": size[1],
                "deviceScaleFactor": 1,
                "mobile": size == PHONE,
            },
        )
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )

    def run(self, script: str, *arguments: Any) -> Any:
        """Returns the script's result; awaits promises."""
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """Returns the console's messages since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def stop(self) -> None:
        self.driver.quit()
