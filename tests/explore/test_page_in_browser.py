"""The page of `skelmix explore` in headless Chromium, without its processes: haste, loss, hostility."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import browser
from helpers.explored import QUICK, InlinePlanner, inline_explorer, move, serving, wait_for_answer

pytestmark = pytest.mark.xdist_group("browser")  # one worker, one browser


def test_a_hundred_quick_moves_are_one_question(tab: Any) -> None:
    explorer = inline_explorer()
    with serving(explorer) as server:
        page = tab(server.address + QUICK)
        wait_for_answer(page)
        asked: Any = explorer.plans.asked  # type: ignore[attr-defined]
        assert len(asked) == 1
        page.run(
            "for (let step = 1; step <= 100; step++) { at('epsilon-slider').value = step; "
            "at('epsilon-slider').dispatchEvent(new Event('input')); }"
        )
        wait_for_answer(page)
        assert len(asked) == 2
        assert dict(asked[-1].numbers)["epsilon"] == page.run("+at('epsilon').value")
        assert page.run("shown.summary.epsilon") <= page.run("+at('epsilon').value")
        page.close()


def test_the_axis_of_errors_has_a_whole_number_at_every_tick(tab: Any) -> None:
    with serving() as server:
        page = tab(server.address + QUICK)
        wait_for_answer(page)
        page.wait("document.querySelector('#chart .ytick text') !== null")
        read = "[...document.querySelectorAll('#chart .ytick text')].map(tick => tick.textContent)"
        assert page.run(read) == page.run("chart.layout.yaxis.ticktext")
        assert len(page.run(read)) >= 2
        for values, ticks in {
            (1, 1.01): ["1", "1.1", "1.2", "1.3", "1.4"],
            (1, 30): ["1", "2", "5", "10", "20"],
            (0.9, 900_000): ["1", "10", "100", "1,000", "10,000", "100,000", "10<sup>6</sup>"],
        }.items():
            assert page.run(f"logAxis({list(values)}).ticktext") == ticks
        page.close()


def test_legends_keep_clear_of_their_plots_when_the_window_changes(tab: Any) -> None:
    with serving() as server:
        page = tab(server.address + QUICK)
        wait_for_answer(page)
        page.wait("document.querySelector('#accuracy .legend') !== null")
        box = "at('accuracy').querySelector('%s').getBoundingClientRect()"
        gap = f"{box % '.gridlayer'}.top - {box % '.legend'}.bottom"
        for width in (390, 768, 1280, 320, 768):
            page.look(width=width)
            page.wait(f"Math.abs({box % '.main-svg'}.width - at('accuracy').clientWidth) < 2")
            page.wait(f"{gap} >= 0 && {gap} < 9", seconds=20)
        page.look(width=1280)
        page.close()


def test_a_question_overtaken_by_an_older_one_is_asked_again(tab: Any) -> None:
    class Overtaken(InlinePlanner):
        async def ask(self, settings: Any) -> dict[str, Any]:
            if len(self.asked) == 1:  # as if another question of this tab had come in meanwhile
                self.asked.append(settings)
                explorer._asking.popitem()[1].cancel()
            return await super().ask(settings)

    explorer = inline_explorer()
    explorer.plans = planner = Overtaken()  # type: ignore[assignment]
    with serving(explorer) as server:
        page = tab(server.address + QUICK)
        wait_for_answer(page)
        move(page, "epsilon", 20)
        wait_for_answer(page)
        assert len(planner.asked) >= 3
        assert page.run("shown.summary.epsilon") <= page.run("+at('epsilon').value")
        page.close()


def test_a_stopped_server_is_said_and_nothing_old_is_shown(tab: Any) -> None:
    with serving() as server:
        page = tab(server.address + QUICK)
        wait_for_answer(page)
    move(page, "epsilon", 20)
    page.wait("!at('stopped').hidden")
    said = page.run("at('stopped').textContent")
    assert "Run skelmix explore again" in said
    assert f"epsilon={page.run('at(`epsilon`).value')}" in said, "the settings are lost"
    assert page.run("at('tiles').children.length") == 0
    assert page.run("at('download').disabled") is True
    page.close()


def test_another_site_reads_nothing_and_asks_nothing(tab: Any, tmp_path: Path) -> None:
    """A hostile page that knows even the token: on another port, so of another origin."""
    (tmp_path / "index.html").write_text("<!doctype html><title>hostile</title>")
    explorer = inline_explorer()
    asked: Any = explorer.plans.asked  # type: ignore[attr-defined]
    post = "fetch('%splan', {method: 'POST', mode: '%s', body: JSON.stringify(Object.fromEntries(%s))})"
    question = f"new URLSearchParams('{QUICK[1:]}')"
    with browser.files_served(tmp_path) as elsewhere, serving(explorer) as server:
        hostile, own = tab(elsewhere), tab(server.address + QUICK)
        wait_for_answer(own)
        assert own.run(post % (server.address, "cors", question) + ".then(r => r.status)") == 200
        assert len(asked) == 2, "the page itself may ask"
        for mode in ("cors", "no-cors"):
            read = post % (server.address, mode, question) + ".then(r => r.text()).catch(() => 'failed')"
            assert hostile.run(read) in ("failed", ""), "another site read an answer"
        assert server.address + "plan" in hostile.requests
        loaded = hostile.run(
            "new Promise(done => { const s = document.createElement('script'); "
            f"s.src = '{server.address}files/explore.js'; s.onload = () => done('loaded'); "
            "s.onerror = () => done('refused'); document.head.append(s); })"
        )
        assert loaded == "refused"
        assert len(asked) == 2, "another site's question reached the planner"
        hostile.close()
        own.close()
