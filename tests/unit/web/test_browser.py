"""The web page in a real Chromium: by keyboard, on a phone, in the dark, without scripts, for other
people's eyes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirage.domain import MAX_NAME, Action, Chain, Decision, JobState, Link
from tests.browser import chromium
from tests.web_site import WebSite, web_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("playwright")

NOW = 1_800_000_000
OWN = ("", "decisions", "queue", "site", "?show=all&days=30")
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1100, "height": 800}
EVIL = (
    "\"'><script>document.title='pwned'</script><img src=x"
    " onerror=\"document.title='pwned'\">\n]]>--> {{7*7}} \x00"
)
LONG = "y" * 120


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    with web_site(tmp_path_factory.mktemp("web"), NOW, {"alice": 7, "bob": 5}) as found:
        found.desk.audit_summary.latest(0)
        found.desk.audit_summary.wait()
        plant(found)
        yield found


def plant(site: WebSite) -> None:
    """A chain of mallory's in which all text is an attack, and as long as can be."""
    words = EVIL.replace("\x00", "") + LONG
    site.store.save_chain(
        Chain(
            chain_id="evil1234",
            user="mallory",
            segments=3,
            reason=words,
            created_s=NOW - 7200,
            updated_s=NOW,
            name=words[:MAX_NAME],
        )
    )
    first = Link(
        chain_id="evil1234",
        user="mallory",
        segment=1,
        job_id=71,
        predecessor_id=None,
        state=JobState.RUNNING,
        partition=words,
        nodes=1,
        time_limit_s=7200,
        submit_s=NOW - 7200,
        eligible_s=NOW - 7200,
        start_s=NOW - 600,
    )
    second = Link(
        chain_id="evil1234",
        user="mallory",
        segment=2,
        job_id=72,
        predecessor_id=71,
        state=JobState.PENDING,
        partition=words,
        nodes=1,
        time_limit_s=7200,
        submit_s=NOW - 7200,
    )
    for link in (first, second):
        site.store.save_link(link)
    site.store.add_decision(
        Decision(
            at_s=NOW,
            chain_id="evil1234",
            user="mallory",
            predecessor_id=71,
            successor_id=72,
            policy=words,
            action=Action.WAIT,
            reason=words,
            inputs_hash="0" * 64,
            remaining_s=600,
            wait_p10_s=60,
            wait_p50_s=120,
            wait_p90_s=300,
        )
    )
    site.store.save_chain(
        Chain(
            chain_id="evil5678",
            user="<b>mallory</b>",
            segments=3,
            reason=words,
            created_s=NOW - 7200,
            updated_s=NOW,
        )
    )


Open = Callable[..., "Page"]


@pytest.fixture
def visit(browser: Browser, site: WebSite) -> Iterator[Open]:
    """Opens the page as a user, in a window of its own; what the browser complains of fails the
    test.
    """
    contexts = []

    def start(
        user: str | None = "alice", scheme: str = "light", size: dict[str, int] = DESK, **more: Any
    ) -> Page:
        context = browser.new_context(viewport=size, color_scheme=scheme, **more)  # type: ignore[arg-type]
        context.set_default_timeout(120_000)  # milliseconds: no test depends on a machine's speed
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(site.link(user) if user != "nobody" else site.url)
        return page

    complaints: list[str] = []
    yield start
    for context in contexts:
        context.close()
    assert [words for words in complaints if not words.startswith("Failed to load resource")] == []


def base(page: Page) -> str:
    return page.url.split("?")[0]


def pages_of(page: Page) -> Iterator[str]:
    """All kinds of pages, one after the other: one's own, one chain, and what is refused."""
    own = base(page)
    for name in OWN:
        page.goto(own + name)
        yield name or "chains"
    page.click("ol.rows h3 a")
    page.wait_for_url("**/chain/**")  # a click returns as soon as the browser is on its way
    for summary in page.locator("summary").all():
        summary.click()
    yield "chain"


# --- by keyboard

_FOCUSED = """() => {
    const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
    return {
        name: at.tagName + ':' + (at.innerText || at.name || at.getAttribute('aria-label') || '').slice(0, 40).trim(),
        outline: style.outlineStyle == 'none' ? 0 : parseFloat(style.outlineWidth),
        inside: box.left >= 0 && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth + 1,
    }
}"""
_IN_ORDER = """() => [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')].map(
    at => at.tagName + ':' + (at.innerText || at.name || at.getAttribute('aria-label') || '').slice(0, 40).trim())"""


def test_tab_reaches_everything_in_order_and_shows_where_it_is(visit: Open) -> None:
    page = visit(size={"width": 1100, "height": 2400})
    for name in ("", "decisions", "queue", "site"):
        page.goto(base(page).rsplit("/", 1)[0] + "/" + name)
        expected = page.evaluate(_IN_ORDER)
        reached = []
        for _ in expected:
            page.keyboard.press("Tab")
            at = page.evaluate(_FOCUSED)
            reached.append(at["name"])
            assert at["outline"] >= 2, at
            assert at["inside"], at
        assert reached == expected
        assert len(expected) > 6


def test_the_first_stop_skips_to_the_content(visit: Open) -> None:
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the content"
    assert page.locator(".skip").bounding_box()["y"] >= 0  # type: ignore[index]
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_a_form_and_a_chain_by_keyboard_alone(visit: Open) -> None:
    page = visit()
    page.focus("select[name=show]")
    page.keyboard.press("a")  # "also over"
    page.keyboard.press("Tab")
    page.keyboard.press("3")  # 3 or 30 days
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**show=all**")
    page.focus("ol.rows h3 a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/chain/**")
    page.focus("summary")
    page.keyboard.press("Enter")
    assert page.locator("details[open] table").count() == 1


# --- on a phone, in the dark, without scripts


def test_a_phone_shows_all_of_the_width(visit: Open) -> None:
    page = visit(None, size=PHONE, is_mobile=True, has_touch=True)
    for name in pages_of(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        for at in page.locator("nav a, button, select").all():
            box = at.bounding_box()
            assert box is not None
            assert box["height"] >= 24, "large enough for a thumb (WCAG 2.5.8)"


def test_large_letters_fit_too(visit: Open) -> None:
    """A narrow window at twice the size of letters: WCAG 1.4.4 and 1.4.10."""
    page = visit(None, size={"width": 320, "height": 700})
    for name in pages_of(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, name


def luminance(page: Page) -> float:
    """Of the page's ground: 0 black, 1 white."""
    words = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = (
        int(part) / 255 for part in words.removeprefix("rgb(").removesuffix(")").split(",")
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_in_the_dark_the_ground_is_dark(visit: Open) -> None:
    assert luminance(visit(scheme="light")) > 0.9
    assert luminance(visit(scheme="dark")) < 0.1


@pytest.mark.parametrize(("scheme", "size"), [("light", DESK), ("dark", PHONE)])
def test_axe_finds_nothing(visit: Open, scheme: str, size: dict[str, int]) -> None:
    """axe-core: contrast, names, roles, headings, landmarks, tables, and a hundred rules more."""
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()

    def check(page: Page, name: str) -> None:
        found = axe.run(page, options={"resultTypes": ["violations"]}).response
        told = [
            (rule["id"], [node["html"][:160] for node in rule["nodes"]])
            for rule in found["violations"]
        ]
        assert told == [], name
        ran = {rule["id"] for rule in [*found["passes"], *found["inapplicable"]]}
        assert "color-contrast" in ran

    page = visit(None, scheme=scheme, size=size)
    for name in pages_of(page):
        check(page, name)
    page.goto(base(page).split("/s/")[0])
    check(page, "nobody's")
    page.goto(page.url + "none")
    check(page, "not there")


def test_axe_can_find_something(visit: Open) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = visit()
    page.evaluate("document.querySelector('h1').style.color = 'rgb(190, 195, 200)'")
    page.evaluate(
        "document.querySelector('select').removeAttribute('name'); document.documentElement.lang"
        " = ''"
    )
    found = {rule["id"] for rule in Axe().run(page).response["violations"]}
    assert {"color-contrast", "html-has-lang"} <= found


def test_drawings_stand_out_from_their_ground(visit: Open) -> None:
    """3 to 1 (WCAG 1.4.11), which axe does not look at."""
    for scheme in ("light", "dark"):
        page = visit(scheme=scheme)
        ground = contrast_part(page, "--card")
        for name in ("--run", "--gap", "--both", "--wait", "--now", "--range"):
            part = contrast_part(page, name)
            ratio = (max(part, ground) + 0.05) / (min(part, ground) + 0.05)
            assert ratio >= 3, (scheme, name, ratio)
        for below in ("--ground", "--card"):
            pair = sorted([contrast_part(page, "--focus"), contrast_part(page, below)])
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 3, (scheme, "focus", below)


def contrast_part(page: Page, name: str) -> float:
    """Relative luminance (WCAG 2.2) of one of the sheet's colours."""
    text = page.evaluate(
        "name => getComputedStyle(document.documentElement).getPropertyValue(name)", name
    ).strip()
    parts = [int(text[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_without_scripts_nothing_is_missing(visit: Open) -> None:
    page = visit(java_script_enabled=False)
    assert page.locator("ol.rows > li").count() == 6
    page.select_option("select[name=days]", "30")
    page.select_option("select[name=show]", "all")
    page.click("form.asked button")
    page.wait_for_url("**days=30**")
    assert page.locator("ol.rows > li").count() == 7
    page.click("nav >> text=Queue")
    page.wait_for_url("**/queue")
    assert page.locator("h1").inner_text() == "Queue"
    page.click("text=Leave")
    page.wait_for_url(lambda url: "/s/" not in url)
    assert page.locator("h1").inner_text() == "Site"


# --- other people's eyes


def test_another_users_chain_is_refused(visit: Open) -> None:
    alice, bob = visit("alice"), visit("bob")
    theirs = bob.locator("ol.rows h3 a").first.get_attribute("href") or ""
    answer = alice.goto(base(alice).split("/s/")[0] + theirs)
    assert answer is not None
    assert answer.status == 403
    chain = theirs.split("/chain/")[1]
    alice.go_back()
    answer = alice.goto(f"{base(alice)}chain/{chain}")
    assert answer is not None
    assert answer.status == 404
    assert "bob" not in alice.inner_text("body")
    assert bob.goto(base(bob) + "chain/" + chain).status == 200  # type: ignore[union-attr]


def test_the_cookie_is_out_of_scripts_reach_and_goes_nowhere_else(
    visit: Open, site: WebSite
) -> None:
    page = visit()
    assert page.evaluate("document.cookie") == ""
    own = base(page)
    cookies = []
    for url in (site.url, own):
        answer = page.goto(url)
        assert answer is not None
        cookies.append(answer.request.all_headers().get("cookie"))
    elsewhere, here = cookies
    assert elsewhere is None
    assert (here or "").startswith("mirage=")


@pytest.mark.parametrize("user", ["mallory", None])
def test_text_of_users_is_text(visit: Open, user: str | None) -> None:
    page = visit(user)
    texts = []
    for name in pages_of(page):
        assert page.title() != "pwned"
        assert page.locator("script, img, b script, iframe").count() == 0, name
        texts.append(page.inner_text("body"))
    page.goto(base(page).split("/chain/")[0] + "/chain/evil1234/mallory")
    for summary in page.locator("summary").all():
        summary.click()
    texts.append(page.inner_text("body"))
    assert page.locator("script, img").count() == 0
    assert "<script>document.title='pwned'</script>" in texts[-1]
    assert "{{7*7}}" in texts[-1]
    assert page.title() != "pwned"


def test_a_script_that_got_in_would_not_run(browser: Browser, site: WebSite) -> None:
    """The second lock: the policy in the headers."""
    context = browser.new_context()
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(site.link("alice"))
    page.evaluate("""() => {
        const script = document.createElement('script');
        script.textContent = "document.title = 'pwned'";
        document.body.append(script);
        document.body.insertAdjacentHTML('beforeend', '<img src="http://127.0.0.1:9/x">');
    }""")
    page.wait_for_function("document.images.length == 1")
    assert page.title() != "pwned"
    assert any("Content Security Policy" in text for text in said)
    context.close()


def test_the_pictures_in_the_docs_are_small() -> None:
    folder = Path(__file__).parents[3] / "docs" / "web"
    pictures = list(folder.glob("*.png"))
    assert len(pictures) >= 4
    assert all(picture.stat().st_size < 200_000 for picture in pictures)
