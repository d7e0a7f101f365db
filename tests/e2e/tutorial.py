"""A tutorial, typed in an empty folder: its files are saved, its commands run, their outputs compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Self

from headrace.embedded.processes import until

_DOCS = Path(__file__).parents[2] / "docs/tutorials"
_BLOCK = re.compile(
    r"(?P<before>[^\n]*\n?[^\n]*)\n\n```(?P<kind>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
_NAME = re.compile(r"`(\w+\.(?:py|toml))`")
_SCHEMA = "customers.schema.yml"
_IN_THE_BACKGROUND = ("python servers.py", "python database.py", "python follow.py", "headrace run")
_WITHIN = 180


def is_shown(expected: str, output: str) -> bool:
    """Whether an output has what the page shows: `…` stands for anything; blanks and marks do not count."""
    parts = [re.escape(re.sub(r"[\s✓]", "", part)) for part in expected.split("…")]
    return re.search(".*".join(parts), re.sub(r"[\s✓]", "", output)) is not None


class Background:
    """A command that goes on while others are typed."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._log = folder / f"{re.sub(r'[^a-z]+', '-', command)[:30]}.log"
        self._file: IO[bytes] = self._log.open("wb")
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def shows(self, expected: str) -> None:
        assert until(lambda: is_shown(expected, self.output), _WITHIN), f"{expected}\n---\n{self.output}"

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait for the end."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        self._end()

    def press_enter(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.write(b"\n")
            self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        finally:
            self._file.close()


class Tutorial:
    """One page, played section by section in a folder of its own."""

    def __init__(self, page: str, folder: Path) -> None:
        self._sections = (_DOCS / page).read_text().split("\n## ")
        self._folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {**os.environ, "PATH": path, "COLUMNS": "120", "PYTHONUNBUFFERED": "1"}
        self.background: list[Background] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for command in reversed(self.background[1:]):
            command.interrupt()
        for command in self.background[:1]:
            command.press_enter()

    def play(self, number: int) -> None:
        """Do what the section of this number says."""
        [section] = [text for text in self._sections if text.startswith(f"{number}. ")]
        for block in _BLOCK.finditer(section):
            text = block["text"]
            match block["kind"]:
                case "python" | "toml":
                    (self._folder / _NAME.findall(block["before"])[-1]).write_text(text)
                case "yaml" if "Save" in block["before"]:
                    (self._folder / _SCHEMA).write_text(text)
                case "yaml":
                    assert is_shown(text.partition("version")[2], self._read(_SCHEMA))
                case "text":
                    self.background[-1].shows(text)
                case "console":
                    for typed in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                        command, _, expected = typed.partition("\n")
                        self._type(command, expected)

    def _type(self, command: str, expected: str) -> None:
        if command.startswith(_IN_THE_BACKGROUND):
            self.background.append(Background(command, self._folder, self._environment))
            self.background[-1].shows(expected)
            for line in re.findall(r"^export (.+)$", self.background[-1].output, re.MULTILINE):
                self._environment |= dict(re.findall(r"(\w+)=(\S+)", line))
            return
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_WITHIN,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        assert is_shown(expected, done.stdout), f"{command}\n{done.stdout}"

    def _read(self, name: str) -> str:
        return (self._folder / name).read_text()
