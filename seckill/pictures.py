"""A drawing for a product that has no photograph: always the same one for the same name."""

import hashlib

# Backdrop, far things, near thing, light: quiet, and readable in both colour schemes.
_PALETTES = (
    ("#f3e3d3", "#d9a06b", "#8c4a2f", "#fff6ea"),
    ("#dbe7ea", "#7fa9b5", "#2f5763", "#f4fafb"),
    ("#e6e4d4", "#a3a76d", "#545b2c", "#fbfbef"),
    ("#eadfe8", "#b58aab", "#5e3a57", "#fbf5fa"),
    ("#e0e3f0", "#8b95c4", "#39437a", "#f6f7fd"),
    ("#f4dcd8", "#d98478", "#8b2f2b", "#fff3f1"),
)
# Each stands on the lower edge of a box of 100 × 100.
_THINGS = (
    # a lamp
    '<path d="M28 50 40 8h20l12 42z" fill="{light}"/><path d="M47 50h6v42h-6z" fill="{near}"/>'
    '<rect x="30" y="92" width="40" height="8" rx="4" fill="{near}"/>',
    # a box with a ribbon
    '<rect x="12" y="36" width="76" height="64" rx="6" fill="{near}"/>'
    '<path d="M44 36h12v64H44zM50 36c-16-24-34-12-24-2s24 2 24 2c16-24 34-12 24-2s-24 2-24 2" '
    'fill="{far}"/>',
    # a bowl on a foot
    '<path d="M6 46h88c0 30-20 44-44 44S6 76 6 46z" fill="{near}"/>'
    '<rect x="34" y="88" width="32" height="12" rx="4" fill="{near}"/>',
    # a bottle and a cup
    '<path d="M26 4h16v22c14 8 16 18 16 28v38q0 8-8 8H18q-8 0-8-8V54c0-10 2-20 16-28z" '
    'fill="{near}"/><path d="M66 62h28v30q0 8-8 8H74q-8 0-8-8z" fill="{light}"/>',
    # books
    '<rect x="8" y="80" width="84" height="20" rx="3" fill="{near}"/>'
    '<rect x="16" y="60" width="70" height="20" rx="3" fill="{light}"/>'
    '<rect x="12" y="40" width="64" height="20" rx="3" fill="{near}"/>',
)


def seed(name: str) -> str:
    """What stands for a name in the address of its picture."""
    return hashlib.blake2b(name.encode(), digest_size=5).hexdigest()


def draw(seed_: str) -> str:
    """An SVG of 480 × 360 without text, script or style."""
    digits = bytes.fromhex(seed_)
    back, far, near, light = _PALETTES[digits[0] % len(_PALETTES)]
    thing = _THINGS[digits[1] % len(_THINGS)].format(near=near, far=far, light=light)
    sun, horizon = 110 + digits[2] % 260, 235 + digits[3] % 25
    size = 1.5 + (digits[4] % 8) / 10
    left, top = 240 - 50 * size, horizon + 45 - 100 * size
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 360" width="480" height="360">'
        f'<rect width="480" height="360" fill="{back}"/>'
        f'<circle cx="{sun}" cy="{horizon - 80}" r="{75 + digits[3] % 40}" fill="{light}"/>'
        f'<rect y="{horizon}" width="480" height="{360 - horizon}" fill="{far}"/>'
        f'<ellipse cx="240" cy="{horizon + 45}" rx="{56 * size:.0f}" ry="9" fill="{near}"/>'
        f'<g transform="translate({left:.0f} {top:.0f}) scale({size:.1f})">{thing}</g></svg>'
    )
