"""Programs forked from a server that has imported what they share: each starts in milliseconds, not in seconds."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

# Reads one program after another from its standard input, and answers with the status of each.
_SERVER = """
import json, os, sys, traceback

{imports}


def run(program):
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(program[name], os.O_WRONLY), number)
    os.environ.update(program["variables"])
    sys.argv = ["-c", *program["arguments"]]
    code = 0
    try:
        exec(compile(program["code"], "<program>", "exec"), {{"__name__": "__main__"}})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


for line in sys.stdin:
    process = os.fork()
    if not process:
        run(json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


class ForkedPrograms:
    """Forks programs from a server, which starts with the first one and runs `imports` before it waits for others."""

    def __init__(
        self, python: str | Path, imports: str, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.python, self.imports, self.folder, self.environment = python, imports, folder, environment
        self._server: subprocess.Popen[str] | None = None

    def run(self, code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            files = {name: Path(scratch) / name for name in ("stdout", "stderr")}
            for file in files.values():
                file.touch()
            program = {"code": code, "arguments": arguments, "variables": variables}
            status = self._ask(program | {name: str(file) for name, file in files.items()})
            written = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        return subprocess.CompletedProcess(arguments, status, **written)

    def _ask(self, program: dict[str, Any]) -> int:
        if self._server is None:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            command = [self.python, "-c", _SERVER.format(imports=self.imports)]
            self._server = subprocess.Popen(command, cwd=self.folder, env=self.environment, **pipes)
        assert self._server.stdin and self._server.stdout
        try:
            self._server.stdin.write(json.dumps(program) + "\n")
            self._server.stdin.flush()
            return int(self._server.stdout.readline())
        except BaseException:  # such as a timeout: its answer would be taken for that to the next program
            self._server.kill()
            self._server = None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server:
            self._server.communicate()
