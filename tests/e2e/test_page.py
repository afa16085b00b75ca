"""The page for people, in a real browser, of a real server."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess
from transports import LOSS

pytest.importorskip("selenium")
from browser import PHONE, WIDE, Browser, find_driver

pytestmark = pytest.mark.server_only

MOST_BYTES = 100_000
# Batches of a run that the server keeps for the page.
KEPT = 128
RULES = cw.Dialect(
    "verl",
    {
        "rollout_is": "token",
        "rollout_is_threshold": 1.5,
        "rollout_rs": "token_k1",
        "rollout_rs_threshold": 1.5,
    },
)


def clean_batch(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """A batch in which the doctor finds nothing: padded_batch has log-probs above 0."""
    return {
        name: array - np.float32(4) if name.endswith("log_probs") else array
        for name, array in padded_batch(*args, **kwargs).items()
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver = find_driver()
    if driver is None:
        pytest.skip("chromium and chromedriver are not installed: .ci/setup browser")
    running = Browser(driver)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def no_complaints(browser: Browser) -> Iterator[None]:
    """The console is silent, unless the test has read it."""
    browser.complaints()
    browser.show()
    yield
    assert browser.complaints() == []
    # The page's server may stop; its polling would complain into the next test.
    browser.open("about:blank")


@pytest.fixture
def server(start_server: Callable[..., ServerProcess]) -> ServerProcess:
    """One of its own, so that there are no runs at first."""
    return start_server()


def page_of(server: ServerProcess) -> str:
    return server.metrics_url.removesuffix("metrics")


def fetch(url: str, method: str = "GET") -> tuple[int, str, bytes]:
    """Status, headers and body."""
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return answer.status, str(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, str(error.headers), error.read()


def wait_for(browser: Browser, script: str, *arguments: Any) -> Any:
    """Makes the page refresh, and returns the script's result as soon as there is one."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = browser.run(
            f"return poll().then(function() {{ {script} }}.bind(null, ...arguments))", *arguments
        )
        if found:
            return found
    raise AssertionError(f"the page never showed: {script}")


def choose(browser: Browser, run: str) -> None:
    find = (
        "[...document.querySelectorAll('#runs button')].find(b => b.dataset.run === arguments[0])"
    )
    wait_for(browser, f"return {find}", run)
    browser.run(f"{find}.click()", run)
    wait_for(
        browser,
        "return document.getElementById('name').textContent === arguments[0]",
        run or "(without a label)",
    )


def shown(browser: Browser, place: str) -> dict[str, float]:
    """The tiles' numbers by metric, as they were before they were rounded."""
    tiles = browser.run(
        f"return [...document.querySelectorAll('#{place} [data-metric]')].map(e => [e.dataset.metric, e.dataset.value])"
    )
    return {name: float(value) for name, value in tiles}


def test_drift_by_staleness_is_a_table_of_runs_that_tell_versions(
    browser: Browser, server: ServerProcess
) -> None:
    batch = clean_batch()
    versions = np.arange(batch["response_mask"].size, dtype=np.int32) % 12 - 1
    with cw.Client(server.address) as client:
        staleness = client.correct(
            method="token_tis",
            run="stale",
            policy_version=10,
            policy_versions=versions.reshape(batch["response_mask"].shape),
            **batch,
        ).staleness
        client.correct(method="token_tis", run="other", **batch)
    assert staleness is not None
    browser.open(page_of(server))
    choose(browser, "stale")
    rows = wait_for(
        browser,
        "const rows = [...document.querySelectorAll('#staleness [data-staleness]')]"
        ".map(r => [r.dataset.staleness, Number(r.dataset.tokens)]);"
        "return document.getElementById('stale').hidden ? null : rows",
    )
    expected = [[bucket.label, bucket.tokens] for bucket in staleness.buckets]
    assert rows == [*expected, ["unknown", staleness.unknown_tokens]]
    choose(browser, "other")
    wait_for(browser, "return document.getElementById('stale').hidden")


def test_an_empty_server_says_how_to_send_the_first_batch(
    browser: Browser, server: ServerProcess
) -> None:
    browser.open(page_of(server))
    snippet = wait_for(
        browser,
        "return !document.getElementById('empty').hidden && document.getElementById('snippet').textContent",
    )
    assert f'cw.Client("{server.address}")' in snippet
    assert not browser.run("return document.getElementById('run').checkVisibility()")
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "client/python")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wait_for(browser, "return document.getElementById('name').textContent === 'first'")
    assert browser.run("return document.getElementById('empty').hidden")


def test_numbers_are_those_of_metrics(browser: Browser, server: ServerProcess) -> None:
    browser.open(page_of(server))
    with cw.Client(server.address) as client:
        for seed in range(5):
            rules = client.correct(method=RULES, run="rules", **clean_batch(seed=seed))
            client.correct(method=LOSS, run="loss", policy_version=seed, **clean_batch(seed=seed))
        client.correct(method="token_tis", **clean_batch())
        with pytest.raises(cw.InvalidRequestError):
            client.correct(method="nothing", **clean_batch())
    numbers = ("counterweight_drift_", "counterweight_loss")
    for run, extra in (("rules", 0), ("loss", 4), ("", 0)):
        choose(browser, run)
        tiles = shown(browser, "tiles")
        assert len(tiles) >= 6
        for name, value in tiles.items():
            assert value == server.metric(f'{name}{{run="{run}"}}'), name
        curves = browser.run(
            "return [...document.querySelectorAll('#curves [data-curve]')].map(e => [e.dataset.curve, e.dataset.last, e.dataset.points])"
        )
        assert len(curves) >= 6
        assert sum(name.startswith("counterweight_loss") for name, _, _ in curves) >= extra / 2
        for name, last, points in curves:
            assert name.startswith(numbers)
            # JSON has null for NaN.
            told = server.metric(f'{name}{{run="{run}"}}')
            assert float("nan" if last == "null" else last) == pytest.approx(told, nan_ok=True), (
                name
            )
            assert int(points) == (1 if run == "" else 5)
    # A link to a run, and the way back from it.
    browser.run("history.back()")
    wait_for(browser, "return document.getElementById('name').textContent === 'loss'")
    browser.run("location.hash = '%'")
    wait_for(browser, "return document.querySelector('#runs [aria-current=true]')")
    browser.run("location.hash = 'rules'")
    wait_for(browser, "return document.getElementById('name').textContent === 'rules'")
    (dropped,) = browser.run(
        "return [...document.querySelectorAll('#dropped [data-rule]')].map(e => [e.dataset.rule, e.dataset.tokens])"
    )
    rule = rules.rules[0].name
    counter = f'counterweight_drift_dropped_tokens_total{{rule="{rule}",run="rules"}}'
    assert dropped == [rule, str(int(server.metric(counter)))]
    bars = browser.run(
        "return [...document.querySelectorAll('#histogram [data-tokens]')].map(e => Number(e.dataset.tokens))"
    )
    assert sum(bars) == int(clean_batch(seed=4)["response_mask"].sum())
    # An answer is in flight until gRPC has let go of it.
    for name in ("counterweight_requests_in_flight", "counterweight_admitted_bytes"):
        tile = f"document.querySelector('#service [data-metric={name}]')"
        wait_for(browser, f"return {tile}.dataset.value === '0'")
    requests = dict(
        browser.run(
            "return [...document.querySelectorAll('#requests [data-request]')].map(e => [e.dataset.request, e.dataset.value])"
        )
    )
    assert requests["Correct INVALID_ARGUMENT"] == "1"
    assert requests["Correct OK"] == "11"


def test_a_run_that_learns_from_few_tokens_is_coloured_and_named(
    browser: Browser, server: ServerProcess
) -> None:
    narrow = cw.Preset("geo_rs_token_tis", keep_lower=0.999, keep_upper=1.001)
    unbounded = cw.CorrectionConfig(
        importance_weight=cw.ImportanceWeight(
            ratio_source=cw.RatioSource.OLD_ROLLOUT, level=cw.Level.TOKEN, bound=cw.Bound.NONE
        )
    )
    browser.open(page_of(server))
    with cw.Client(server.address) as client:
        calm = client.correct(method="token_tis", run="calm", **clean_batch())
        wait_for(browser, "return document.getElementById('state').textContent === 'ready'")
        dropped = client.correct(method=narrow, run="narrow", **clean_batch())
        wide = client.correct(method=unbounded, run="wide", **clean_batch(spread=1.0))
    assert min(calm.metrics["kept_token_fraction"], calm.metrics["effective_sample_size"]) > 0.5
    assert dropped.metrics["kept_token_fraction"] == 0
    assert wide.metrics["effective_sample_size"] < 0.5
    wait_for(
        browser, "return document.getElementById('state').textContent === 'ready, look at 2 runs'"
    )
    words = "[...document.querySelectorAll(arguments[0] + ' .word')].map(e => e.textContent)"
    assert browser.run(f"return {words}", "#runs [data-run=narrow]") == ["all dropped"]
    assert browser.run(f"return {words}", "#runs [data-run=wide]") == ["low sample size"]
    assert browser.run(f"return {words}", "#runs [data-run=calm]") == []
    colour = "getComputedStyle(document.querySelector(arguments[0])).color"
    for run, word in (("narrow", ["all dropped"]), ("wide", ["low sample size"]), ("calm", [])):
        choose(browser, run)
        assert wait_for(browser, f"return [{words}]", "#tiles") == [word]
        assert browser.run(
            "return document.getElementById('advice').checkVisibility() ? "
            "document.getElementById('advice').textContent : ''"
        ).startswith("The rules dropped 100.0 %" if run == "narrow" else "")
    tile = "#tiles [data-metric=counterweight_drift_kept_effective_sample_size_ratio]"
    for run, result in (("narrow", dropped), ("calm", calm)):
        choose(browser, run)
        shown = browser.run("return document.querySelector(arguments[0]).dataset.value", tile)
        assert float(shown) == result.metrics["kept_effective_sample_size"]
    # An axis of shares ends at none and all.
    axis = "[data-curve=counterweight_drift_kept_token_ratio] text"
    for run, ends in (("narrow", ("0.00 %", "1.00 %")), ("calm", ("98.0 %", "100.0 %"))):
        choose(browser, run)
        texts = browser.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", axis
        )
        assert (texts[0], texts[2]) == ends
    for scheme in ("light", "dark"):
        browser.show(WIDE, scheme)
        choose(browser, "narrow")
        tile = "#tiles [data-metric=counterweight_drift_kept_token_ratio]"
        calmer = "#tiles [data-metric=counterweight_drift_k3_nats]"
        told, black, ground = [
            luminance(browser.run(f"return {script}", place))
            for script, place in (
                (colour, tile),
                (colour, calmer),
                (colour.replace(".color", ".backgroundColor"), "#tiles .card"),
            )
        ]
        assert told != black
        # WCAG's AA.
        assert (max(told, ground) + 0.05) / (min(told, ground) + 0.05) > 4.5


def test_most_of_a_run_is_not_all_of_it(browser: Browser, server: ServerProcess) -> None:
    batch = clean_batch()
    with cw.Client(server.address) as client:
        bounds = cw.Preset("skyrl_token_mask", keep_lower=0.9, keep_upper=1.1)
        kept = client.correct(method=bounds, run="half", **batch).metrics["kept_token_fraction"]
    assert 0 < kept < 0.5
    browser.open(page_of(server))
    choose(browser, "half")
    assert wait_for(
        browser,
        "return [...document.querySelectorAll('#tiles .word')].map(e => e.textContent)",
    ) == ["most dropped"]


def test_a_run_is_a_bounded_number_of_batches(browser: Browser, server: ServerProcess) -> None:
    browser.open(page_of(server))
    batch = clean_batch(2, 3)
    with cw.Client(server.address) as client:
        for version in range(KEPT + 7):
            client.correct(method="token_tis", run="long", policy_version=version, **batch)
    choose(browser, "long")
    points = wait_for(
        browser, "return document.querySelector('#curves [data-curve]').dataset.points"
    )
    assert int(points) == KEPT
    assert shown(browser, "tiles")["counterweight_drift_batches_total"] == KEPT + 7


EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>'\"&"


def test_names_are_never_markup(browser: Browser, server: ServerProcess) -> None:
    with cw.Client(server.address) as client:
        with pytest.raises(cw.InvalidRequestError, match="run"):
            client.correct(method="token_tis", run=EVIL, **clean_batch())
        with pytest.raises(cw.InvalidRequestError, match="name"):
            rule = cw.RejectionRule(
                name=EVIL,
                ratio_source=cw.RatioSource.OLD_ROLLOUT,
                estimator=cw.Estimator.K3,
                aggregation=cw.Aggregation.MEAN,
                upper=1.0,
            )
            client.correct(method=cw.CorrectionConfig(rules=[rule]), **clean_batch())
        client.correct(method=RULES, run="good", **clean_batch())
    browser.open(page_of(server) + "#" + urllib.request.quote(EVIL))
    choose(browser, "good")
    # Nor would they be if the server let them in.
    shown_names = browser.run(
        """
        clearTimeout(timer);
        newest++;
        const labels = {run: arguments[0], rule: arguments[0], method: arguments[0], code: arguments[0],
          version: arguments[0], revision: "", backend: "", instruction_set: ""};
        const names = ["counterweight_drift_k3_nats", "counterweight_drift_tokens_total", "counterweight_build_info",
          "counterweight_drift_dropped_tokens_total", "counterweight_requests_total"];
        render(new Map(names.map(name => [name, [{labels, value: 1}]])),
          {address: arguments[0], runs: [{name: arguments[0], seconds: 1}],
           run: {name: arguments[0], times: [1], gauges: {}, edges: [0], histogram: [1, 1]}});
        return ["name", "dropped", "requests", "build", "runs"].map(id => document.getElementById(id).textContent);
        """,
        EVIL,
    )
    assert all(EVIL in text for text in shown_names)
    assert browser.run(
        "return [document.title, document.querySelectorAll('img, script').length]"
    ) == ["Counterweight", 1]
    # And if it were markup, it would not run.
    browser.run("document.getElementById('name').innerHTML = arguments[0]", EVIL)
    assert browser.run("return document.title") == "Counterweight"
    # The policy's effect.
    complaints = browser.complaints()
    assert complaints
    assert all("Content Security Policy" in text for text in complaints)


def test_a_run_that_ended_keeps_its_words_and_asks_for_no_look(
    browser: Browser, server: ServerProcess
) -> None:
    browser.open(page_of(server))
    wait_for(browser, "return document.getElementById('state').textContent === 'ready'")
    states = browser.run(
        """
        clearTimeout(timer);
        newest++;
        const ready = new Map([["counterweight_ready", [{labels: {}, value: 1}]]]);
        return arguments[0].map(run => {
          render(ready, {address: "", runs: [{name: "r", ...run}, {name: "calm", seconds: 0}]});
          return [document.getElementById("state").textContent,
            ...[...document.querySelectorAll("#runs .word")].map(e => e.textContent)];
        });
        """,
        [
            {"seconds": seconds, **why}
            for why in ({"faults": ["rows_permuted"]}, {"last_step": "unused"})
            for seconds in (0, 3599, 3600, 90000)
        ],
    )
    for i, word in enumerate(("rows permuted", "weights unused")):
        look = ["ready, look at 1 run", word]
        assert states[4 * i : 4 * i + 4] == [look, look, ["ready", word], ["ready", word]]


def test_a_run_has_a_word_for_each_trouble(browser: Browser, server: ServerProcess) -> None:
    kept = "counterweight_drift_kept_token_ratio"
    size = "counterweight_drift_effective_sample_size_ratio"
    steps = {
        "unused": ["weights unused"],
        "replaced": ["weights replaced"],
        "rounded": ["weights rounded"],
        "not_issued": ["not corrected"],
        "used": [],
        "not_applied": [],
        "incomplete": [],
    }
    troubles: list[tuple[dict[str, float], dict[str, Any], list[str]]] = [
        ({kept: 0.5, size: 0.5}, {}, []),
        ({kept: 0.499, size: 1}, {}, ["most dropped"]),
        ({kept: 0, size: 0.499}, {}, ["all dropped", "low sample size"]),
        *(({}, {"last_step": state}, words) for state, words in steps.items()),
        ({}, {"faults": ["rows_permuted", "shifted"]}, ["rows permuted"]),
        (
            {kept: 0},
            {"faults": ["shifted"], "last_step": "unused"},
            ["shifted", "weights unused", "all dropped"],
        ),
    ]
    browser.open(page_of(server))
    for gauges, listed, words in troubles:
        assert (
            browser.run(
                "return wordsOf(new Map(Object.entries(arguments[0]).map("
                "([name, value]) => [name, [{labels: {run: 'r'}, value}]])), arguments[1])",
                gauges,
                {"name": "r", **listed},
            )
            == words
        )


def test_numbers_have_known_texts(browser: Browser, server: ServerProcess) -> None:
    browser.open(page_of(server))
    texts = {
        "show(null)": "–",
        "show(NaN, 'count')": "–",
        "show(Infinity, 'number')": "∞",
        "show(-Infinity, 'share')": "-∞",
        "show(0.0999, 'share')": "9.99 %",
        "show(0.1, 'share')": "10.0 %",
        "show(1234567, 'count')": "1,234,567",
        "show(0.25, 'seconds')": "250 ms",
        "show(2.5, 'seconds')": "2.50 s",
        "show(3 * 2 ** 19, 'bytes')": "1.5 MiB",
        "show(0, 'number')": "0",
        "show(-0.00012345, 'number')": "-1.23e-4",
        "show(0.5, 'number')": "0.500",
        "show(123456, 'number')": "1.23e+5",
        "ago(59.9)": "59 s ago",
        "ago(60)": "1 min ago",
        "ago(3599)": "59 min ago",
        "ago(3600)": "1 h ago",
    }
    found = browser.run(f"return [{', '.join(texts)}]")
    assert dict(zip(texts, found, strict=True)) == texts
    page = 'a{b="1\\n",c="d\\"}"} -Inf\n# TYPE a gauge\na 1e3\n'
    assert browser.run(
        "return parse(arguments[0]).get('a').map(e => [e.labels, String(e.value)])", page
    ) == [[{"b": "1\n", "c": 'd"}'}, "-Infinity"], [{}, "1000"]]


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_it_is_readable_on_any_screen(
    browser: Browser, server: ServerProcess, size: tuple[int, int]
) -> None:
    with cw.Client(server.address) as client:
        for run in ("a" * 64, "b", "c", "d", "e"):
            client.correct(method=LOSS, run=run, **clean_batch())
    contrasts = []
    for scheme in ("light", "dark"):
        browser.show(size, scheme)
        browser.open(page_of(server))
        choose(browser, "a" * 64)
        width, screen = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert width <= screen == size[0]
        colours = browser.run(
            "return ['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name])"
        )
        ground, ink = [luminance(colour) for colour in colours]
        contrasts.append((max(ground, ink) + 0.05) / (min(ground, ink) + 0.05))
        assert (ground < ink) == (scheme == "dark")
        # Text is above the 12 pixels under which it is hard to read, but for the axes' numbers.
        small = browser.run(
            "return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('svg') && "
            "parseFloat(getComputedStyle(e).fontSize) < 12).length"
        )
        assert small == 0
    # WCAG's AAA.
    assert min(contrasts) > 7


def luminance(colour: str) -> float:
    """The relative luminance of "rgb(1, 2, 3)"."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return math.fsum(f * p for f, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_it_says_when_the_server_is_gone(browser: Browser, server: ServerProcess) -> None:
    browser.open(page_of(server))
    wait_for(browser, "return document.getElementById('state').textContent === 'ready'")
    server.stop()
    wait_for(browser, "return document.getElementById('lost').checkVisibility()")
    assert all("net::ERR_" in text for text in browser.complaints())


def test_it_is_one_small_file_that_asks_nobody_else(server: ServerProcess) -> None:
    status, headers, body = fetch(page_of(server))
    assert status == 200
    assert len(body) < MOST_BYTES
    text = body.decode()
    # An XML namespace is a name, not an address.
    assert re.findall(r"https?://[^\"']+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"""<link[^>]+href="(?!data:)|<[^>]+\ssrc=|@import|url\(""", text)
    assert "default-src 'none'" in headers
    assert "unsafe" not in headers
    assert fetch(page_of(server), "HEAD")[::2] == (200, b"")
    assert fetch(page_of(server), "POST")[0] == 405
    assert fetch(page_of(server) + "page.json?run=" + 1000 * "a")[0] == 200
    assert fetch(page_of(server) + "other")[0] == 404


def test_a_flag_turns_it_off(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--page=false")
    with cw.Client(server.address) as client:
        client.correct(method="token_tis", **clean_batch())
    assert fetch(page_of(server))[0] == 404
    assert fetch(page_of(server) + "page.json")[0] == 404
    assert server.metric("counterweight_corrected_batches_total") == 1


def test_a_run_with_another_method_than_it_declares(
    browser: Browser, server: ServerProcess
) -> None:
    with cw.Client(server.address) as client:
        client.declare_run("token_tis", run="other")
        client.correct(method="icepop", run="other", **clean_batch())
    browser.open(page_of(server))
    choose(browser, "other")
    wait_for(browser, "return document.getElementById('advice').textContent.includes('declares')")
    words = "return [...document.querySelectorAll('#runs .word')].map(e => e.textContent)"
    assert browser.run(words) == ["not the declared method"]


def test_steps_that_a_trainer_reports(browser: Browser, server: ServerProcess) -> None:
    issued = cw.Receipt(fingerprint=7, tokens=100, changed_tokens=90, weight_excess=3.0)
    unused = cw.Receipt(fingerprint=8, tokens=100)
    with cw.Client(server.address) as client:
        client.correct(method="token_tis", run="vanilla", **clean_batch())
        for step, applied in enumerate((issued, unused, unused)):
            client.report_step(run="vanilla", step=step, tokens=100, issued=issued, applied=applied)
        # It has no batch to show.
        client.report_step(run="skips", step=1, tokens=100)
    browser.open(page_of(server))
    choose(browser, "vanilla")
    receipts = browser.run(
        "return [...document.querySelectorAll('#receipts [data-receipt]')].map(e => [e.dataset.receipt, e.dataset.value])"
    )
    assert sorted(receipts) == [["unused", "2"], ["used", "1"]]
    advice = "return document.getElementById('advice').textContent"
    assert "did not use its weights" in browser.run(advice)
    choose(browser, "skips")
    assert "trained without a correction" in browser.run(advice)
    words = "return [...document.querySelectorAll('#runs .word')].map(e => e.textContent)"
    assert sorted(browser.run(words)) == ["not corrected", "weights unused"]
    assert browser.run("return document.getElementById('state').textContent").endswith("2 runs")


def test_a_replica_that_drifts_is_named(browser: Browser, server: ServerProcess) -> None:
    random = np.random.default_rng(5)
    with cw.Client(server.address) as client:
        for _ in range(16):
            for replica, spread in (("a", 0.05), ("b", 0.2), ("c", 0.05)):
                rollout = -4 - random.exponential(size=(8, 50)).astype(np.float32)
                client.correct(
                    method="token_tis",
                    run="origins",
                    replica=replica,
                    rollout_log_probs=rollout,
                    old_log_probs=rollout
                    + random.normal(0, spread, rollout.shape).astype(np.float32),
                    response_mask=np.ones(rollout.shape, bool),
                )
        client.correct(method="token_tis", run="other", **clean_batch())
    browser.open(page_of(server))
    choose(browser, "origins")
    rows = wait_for(
        browser,
        "const rows = [...document.querySelectorAll('#replicas [data-replica]')]"
        ".map(r => [r.dataset.replica, r.dataset.outlier]);"
        "return document.getElementById('origins').hidden ? null : rows",
    )
    assert rows == [["a", "false"], ["b", "true"], ["c", "false"]]
    listed = browser.run("return document.querySelector('#runs [data-run=origins]').textContent")
    assert "a replica drifts" in listed
    choose(browser, "other")
    wait_for(browser, "return document.getElementById('origins').hidden")


def test_audited_rows_are_a_line(browser: Browser, server: ServerProcess) -> None:
    batch = clean_batch()
    batch = {name: batch[name] for name in ("rollout_log_probs", "old_log_probs", "response_mask")}
    with cw.Client(server.address) as client:
        audited = client.diagnose(run="audited", audit=cw.Audit(), **batch).audit
    assert audited is not None
    browser.open(page_of(server))
    choose(browser, "audited")
    line = wait_for(
        browser,
        "const line = document.getElementById('audit');"
        "return line.hidden ? null : line.textContent",
    )
    assert line == f"Engine and trainer by audited rows: {audited.sentence}"
