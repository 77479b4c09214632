"""Markdown as HTML: what people wrote is shown, and nothing of it can do harm."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.surfaces.text.markup import plain_only, rendered, to_html, well_formed

_ATTRIBUTES = {"a": {"href", "rel"}, "ol": {"start"}, "code": {"class"}}
_TAGS = re.compile(
    r"a|blockquote|br|code|del|em|h[1-6r]|li|ol|p|pre|s|strong|t(able|body|d|h|head|r)|ul"
)


class _Judge(HTMLParser):
    """Fails at the first thing that has no business in a message."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert _TAGS.fullmatch(tag), tag
        for name, value in attrs:
            assert name in _ATTRIBUTES.get(tag, set()), (tag, name)
            if name == "href":
                assert (value or "").lower().startswith(("http:", "https:", "mailto:", "matrix:"))
            if name == "class":
                assert (value or "").startswith("language-")


def _judge(html: str | None) -> None:
    judge = _Judge()
    judge.feed(html or "")
    judge.close()


_nasty = st.sampled_from(
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        "[a](JaVa&#115;cript:alert(1))",
        "![a](data:text/html,x)",
        "![a](https://tracker.example/x.png)",
        "<javascript:alert(1)>",
        '[a](https://x "onclick=alert(1)")',
        "<style>*{}</style>",
        '```"><script>\nx\n```',
        "[a]: javascript:x\n\n[a]",
        "<!-- -->",
        "| a | b |\n|---|:-:|\n| <b>x</b> | y |",
        "<https://a.example/?\"onmouseover='x'>",
    ]
)


@given(st.lists(st.one_of(_nasty, st.text(max_size=30)), max_size=6).map("\n".join))
def test_whatever_goes_in_nothing_that_runs_comes_out(text: str) -> None:
    _judge(to_html(text))


@given(st.text(alphabet="*_`~[]()<>!|-#&;:\\\n ax\0\ud800", max_size=200))
def test_no_markdown_breaks_it(text: str) -> None:
    _judge(to_html(text))
    assert plain_only(text) is (to_html(text) is None) or to_html(text) is None


def test_what_people_write_is_shown() -> None:
    html = to_html(
        "# Title\n\n**bold** *it* ~~gone~~ `code`\n\n```python\nif a < b: pass\n```\n\n"
        "| x | y |\n|---|---|\n| 1 | 2 |\n\n3. three\n\n> quote\n\n[site](https://example.org/?a=1&b=2)"
    )
    assert html is not None
    for wanted in (
        "<h1>Title</h1>",
        "<strong>bold</strong> <em>it</em> <s>gone</s> <code>code</code>",
        '<pre><code class="language-python">if a &lt; b: pass\n</code></pre>',
        "<td>1</td>",
        '<ol start="3">',
        "<blockquote>",
        '<a href="https://example.org/?a=1&amp;b=2"',
    ):
        assert wanted in html


def test_a_line_break_stays_one() -> None:
    assert to_html("**a**\nb") == "<p><strong>a</strong><br>\nb</p>"


def test_a_picture_on_the_web_is_shown_as_a_link() -> None:
    html = to_html("![a cat](https://example.org/cat.png)")
    assert html is not None
    assert "<img" not in html
    assert 'href="https://example.org/cat.png"' in html
    assert ">a cat</a>" in html


def test_html_is_shown_and_not_obeyed() -> None:
    assert to_html("**x** <b>hi</b>") == "<p><strong>x</strong> &lt;b&gt;hi&lt;/b&gt;</p>"


@pytest.mark.parametrize("text", ["Hello.", "two\nlines\n\nand a paragraph", "a * b < c & d", ""])
def test_plain_words_need_no_html(text: str) -> None:
    assert plain_only(text)
    assert to_html(text) is None


@pytest.mark.parametrize("text", ["*x*", "- a", "https://x `y`", "\\*", "&amp;", "a  \nb"])
def test_markdown_needs_html(text: str) -> None:
    assert not plain_only(text)


@pytest.mark.parametrize("text", [">" * 12_000 + " hi", "- " * 60 + "hi"], ids=["quotes", "lists"])
def test_what_is_nested_too_deep_is_shown_as_it_was_written(text: str) -> None:
    assert to_html(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "[" * 12_000,
        "![[" * 4_000,
        "*a_" * 4_000,
        "|a" * 3_000 + "\n" + "|-" * 3_000 + "\n" + "|\n" * 2_000,
        "`" * 6_000 + "a",
        "<" * 12_000,
        "[" * 5_000_000,
    ],
    ids=["brackets", "pictures", "stars", "table", "ticks", "angles", "huge"],
)
async def test_hostile_markdown_takes_a_bounded_time(text: str) -> None:
    begun = time.process_time()
    _judge(await rendered(text))
    assert time.process_time() - begun < 4


def test_halves_of_characters_and_nul_are_replaced() -> None:
    assert well_formed("a\ud800b\0c") == "a?b\ufffdc"
