"""The page for whom Django can't answer: no template, no translation, nothing that may hang."""

from html import escape

BUSY = "The site is busy. Please try again in a moment."
_IN_CHINESE = {BUSY: "现在人太多，请稍后再试。"}
# No refresh by itself: it would take the page away from who is still reading it.
_AGAIN = '<p><a href="">Try again · <span lang="zh-Hans">重试</span></a></p>'


def page(detail: str, *, again: bool) -> bytes:
    """The text in both languages; `again`: with a link to ask once more."""
    link = _AGAIN if again else ""
    chinese = f'<p lang="zh-Hans">{_IN_CHINESE[detail]}</p>' if detail in _IN_CHINESE else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(detail)}</title>'
        f'</head><body><main><div role="alert"><h1>{escape(detail)}</h1>{chinese}</div>'
        f"{link}</main></body></html>"
    ).encode()
