"""The extras of babelens, as its installed metadata declares them."""

import re
from importlib.metadata import PackageNotFoundError, requires

# The extra that installs the tools of development.
_DEVELOPMENT = "dev"
_REQUIREMENT = re.compile(r"\s*(?P<name>[A-Za-z0-9._-]+)[^;]*;.*extra\s*==\s*[\"'](?P<extra>[^\"']+)[\"']")


def packages_of_extras() -> dict[str, list[str]]:
    """The packages that each extra installs, both sorted; nothing for a checkout that is not installed."""
    try:
        requirements = requires("babelens") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, requirements)):
        if match["extra"] != _DEVELOPMENT:
            found.setdefault(match["extra"], []).append(match["name"])
    return {extra: sorted(names) for extra, names in sorted(found.items())}
