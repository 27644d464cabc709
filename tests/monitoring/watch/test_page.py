"""The page in a real browser: its values, names nobody would choose, layouts, and who may read it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from kdsl.monitoring.watch.server import PageServer
from kdsl.monitoring.watch.watcher import Watcher
from tests.browser import Page, needs_chromium
from tests.monitoring.watch.jobs import Job, lines, run_job

BAD = "<script>document.title='hit'</script><img src=x onerror=\"document.title='hit'\">"
LONG = "orders_with_customers_and_" * 12


@contextmanager
def serve(*jobs: Job) -> Iterator[PageServer]:
    """The page of some jobs, which asks them every fifth of a second."""
    watcher = Watcher([job.endpoint for job in jobs], 0.2)
    with PageServer(watcher, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        watcher.start()
        try:
            yield server
        finally:
            watcher.close()
            server.shutdown()
            thread.join()


@pytest.fixture
def job() -> Iterator[Job]:
    with run_job() as job:
        yield job


def copy(name: str = "copy", table: str = "Orders", **values: float) -> str:
    return (
        lines(name, running=1, uptime=90_000, batch_duration=1234)
        + lines(name, table, num_records_in_total=5, **values)
        + lines(name, f"{table}Out", num_records_out_total=5, num_records_out_per_second=10)
    )


VALUES = "Object.fromEntries([...document.querySelectorAll('figure')].map(f => [f.querySelector('.title').textContent, "
VALUES += "f.querySelector('.value').textContent]))"


@needs_chromium
class TestPage:
    def test_values_are_written_with_units_and_follow_the_job(self, job: Job, page: Page) -> None:
        job.says(
            copy(
                pending_records=1_234_567,
                pending_seconds=95,
                pending_bytes=3_500_000,
                num_records_in_per_second=999.96,
                num_bytes_in_per_second=512,
            )
        )
        with serve(job) as server:
            page.open(server.url)
            page.wait("document.querySelector('figure')")
            assert page.evaluate(VALUES) == {
                "Lag in records": "1.23 M",
                "Lag in time": "1 min 35 s",
                "Lag in bytes": "3.34 MiB",
                "Records read": "1.00 k/s",
                "Bytes read": "512 B/s",
                "Batch took": "1.2 s",
                "Records written": "10/s",
            }
            assert page.evaluate("document.querySelector('figure .value').title") == "1,234,567 records"
            label = page.evaluate("document.querySelector('figure svg').getAttribute('aria-label')")
            assert label.startswith("Lag in records from ")
            assert label.endswith("at most 1.23 M, now 1.23 M")
            assert re.search(r"for 1 min 3\d s", page.text())

            job.says(copy(pending_records=0))
            page.wait("document.querySelector('figure .value').textContent === '0'")
        assert page.complaints == []

    def test_a_plot_shows_the_value_where_the_pointer_is(self, job: Job, page: Page) -> None:
        job.says(copy(pending_records=5))
        with serve(job) as server:
            page.open(server.url)
            page.wait("document.querySelector('figure .axis span:last-child').textContent === 'max 5'")
            box = page.evaluate("(b => [b.right, b.top])(document.querySelector('figure svg').getBoundingClientRect())")
            page.move(box[0] - 1, box[1] + 10)
            page.wait("/^\\d.*: 5$/.test(document.querySelector('figure .axis span:last-child').textContent)")
            page.move(1, 1)
            page.wait("document.querySelector('figure .axis span:last-child').textContent === 'max 5'")

    def test_names_that_are_html_are_text(self, job: Job, page: Page) -> None:
        job.says(copy(BAD, BAD), lines("other", running=0, failed={(("error", BAD),): 1}))
        with serve(job) as server:
            page.open(server.url)
            page.wait("document.querySelectorAll('article').length === 2")
            text = page.text()

        assert text.count(BAD) >= 3  # the query, its table, the error of the other one
        assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0
        assert page.evaluate("document.title") != "hit"

    @pytest.mark.parametrize("dark", [False, True])
    @pytest.mark.parametrize("width", [320, 390, 1440])
    def test_nothing_is_wider_than_the_page_and_text_can_be_read(
        self, width: int, dark: bool, job: Job, page: Page
    ) -> None:
        job.says(
            copy(LONG, LONG, pending_records=1e15, pending_seconds=86_399, pending_bytes=1e18, records_lost_total=1e9),
            lines("other", running=0, failed={(("error", LONG),): 1}),
        )
        page.look(width, dark=dark)
        with serve(job) as server:
            page.open(server.url)
            page.wait("document.querySelectorAll('article').length === 2")
            page.evaluate("document.querySelector('details').open = true")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            wide = (
                "[...document.querySelectorAll('h2,h3,li,.value,.about,dd')].filter(e => e.scrollWidth > e.clientWidth"
            )
            assert page.evaluate(f"{wide} + 1 && e.clientWidth).map(e => e.textContent)") == []
            assert page.evaluate(CONTRASTS) == []

    def test_it_asks_only_where_it_came_from_and_stores_what_is_open(self, job: Job, page: Page) -> None:
        job.says(copy(pending_records=1, watermark_lag=5))
        with serve(job) as server:
            page.open(server.url)
            page.wait("document.querySelector('details')")
            page.evaluate("document.querySelector('details').open = true")
            page.evaluate("document.querySelector('input[value=all]').click()")
            job.says(copy(pending_records=2, watermark_lag=5))
            page.wait("document.querySelector('figure .value').textContent === '2'")
            assert page.evaluate("document.querySelector('details').open")
            assert "watermarkLag" in page.text()

            assert {url.split("?")[0] for url in page.requests if url != "data:,"} <= {
                server.url + name for name in ("", "page.js", "page.css", "data")
            }
            assert f"{server.url}data?window=all" in page.requests
        assert page.complaints == []

    def test_a_job_that_does_not_answer_and_one_without_queries_are_shown_as_such(self, job: Job, page: Page) -> None:
        job.status = 500
        with run_job() as other, serve(job, other) as server:
            page.open(server.url)
            page.wait("document.querySelectorAll('#endpoints li').length === 2")
            first, second = page.evaluate("[...document.querySelectorAll('#endpoints li')].map(e => e.textContent)")
            assert first.startswith(f"{job.endpoint.url}: no answer since ")
            assert first.endswith(": it answers with HTTP 500 Internal Server Error")
            assert second == f"{other.endpoint.url}: answers, but no streaming query of kdsl has run there yet"
            assert "kdsl.serve_metrics()" in page.text()

            job.status = 200
            job.says(copy())
            page.wait("document.querySelector('article') && document.querySelector('#hint').hidden")
            job.status = 500
            page.wait("document.querySelector('.state.silent')")
            assert "the values are the last ones" in page.text()

    def test_troubles_are_marked_where_the_value_is_and_counted(self, job: Job, page: Page) -> None:
        job.says(copy(pending_seconds=400, leases_lost=1, records_lost_total=2))
        with serve(job) as server:
            page.open(server.url)
            page.wait("document.querySelectorAll('.troubles li').length === 3")
            assert page.evaluate("document.querySelector('figure.pending .title').textContent") == "Lag in time"
            assert page.evaluate("document.querySelector('dd.critical').textContent") == "2"
            assert page.evaluate("document.title") == "(1) kdsl watch"
            assert "1 query, 1 in trouble at " in page.text()

    def test_a_page_whose_command_has_ended_says_so(self, job: Job, page: Page) -> None:
        job.says(copy())
        with serve(job) as server:
            page.open(server.url)
            page.wait("document.querySelector('article')")
        page.wait("document.querySelector('#summary').textContent.includes('does not answer any more since')")


CONTRASTS = """(() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const linear = (v) => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = (c) => { const [r, g, b] = parse(c).map(linear); return .2126 * r + .7152 * g + .0722 * b; };
  const back = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if ((parse(c)[3] ?? 1) === 1) return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = document.querySelectorAll('h1,h2,span,li,strong,dd,dt,td,summary,label,legend,p');
  return [...texts].filter((e) => e.textContent).flatMap((e) => {
    const [a, b] = [light(getComputedStyle(e).color), light(back(e))].sort((x, y) => y - x);
    return (a + .05) / (b + .05) < 4.5 ? [`${e.className} ${e.textContent}: ${(a + .05) / (b + .05)}`] : [];
  });
})()"""
"""The elements whose contrast is less than 4.5 to 1."""


def get(server: PageServer, path: str, host: str) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


class TestServer:
    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("127.0.0.1:1", 200),
            ("localhost", 200),
            ("LOCALHOST:80", 200),
            ("[::1]:9", 200),
            ("evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("localhost.", 403),
            ("", 403),
            ("[", 400),
        ],
    )
    def test_names_of_other_machines_are_refused(self, host: str, status: int, job: Job) -> None:
        with serve(job) as server:
            for path in ("/", "/data", "/page.js"):
                assert get(server, path, host)[0] == status

    def test_every_answer_has_a_policy_that_allows_nothing_from_elsewhere(self, job: Job) -> None:
        with serve(job) as server:
            for path in ("/", "/data?window=300", "/page.css", "/other", "/../server.py"):
                status, headers, body = get(server, path, "localhost")
                assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
                assert "unsafe" not in headers["Content-Security-Policy"]
                assert headers["X-Content-Type-Options"] == "nosniff"
                assert status == (200 if path.split("?")[0] in ("/", "/data", "/page.css") else 404)
                assert body

    @pytest.mark.parametrize("window", ["300", "all", "", "9" * 400, "-1", "nan"])
    def test_any_window_is_answered_with_json(self, window: str, job: Job) -> None:
        job.says(copy(pending_records=1))
        with serve(job) as server:
            status, _, body = get(server, f"/data?window={window}", "localhost")
        assert status == 200
        assert json.loads(body, parse_constant=pytest.fail)["every"] == 0.2

    def test_it_listens_on_this_machine_only_and_refuses_a_port_that_is_taken(self, job: Job) -> None:
        with serve(job) as server:
            assert server.server_address[0] == "127.0.0.1"
            with pytest.raises(OSError, match="in use"):
                PageServer(server.watcher, server.server_port)
