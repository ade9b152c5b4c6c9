import re
import shlex
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
# Its indentation, its language, the title of a block that is a file (```yaml title="recipe.yaml"), and its text.
BLOCK = re.compile(r"^( *)```(\w+)(?: title=\"(.+?)\")?[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# After the prompt of a shell, or after a launcher of several processes.
_COMMAND = re.compile(r"^(?:babelens|.* -m babelens) (.*)$")


def commands(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(match[1], comments=True) for line in lines if (match := _COMMAND.match(line.strip()))]
