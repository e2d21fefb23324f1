"""Every command of the pages is run at small size, or checked as far as that takes no GPU, server or minutes."""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from recollect.cli import _spelt_out, app
from recollect.config.translate.trl.read import names_of
from recollect.workflows.pipeline.pipeline_plan import read_plan
from tests import commands
from tests.guides.blocks import ROOT, Block, blocks, command_lines

SHELL = blocks("bash", "sh", "shell", "console")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PLACEHOLDERS = {
    "DIR_OR_HUB_NAME": "tiny",
    "DIR": "tiny",
    "FILE": "rows.jsonl",
    "FILE.jsonl": "few.jsonl",
    "RUN": "tiny",
    "smollm2": "tiny",  # the real one is 93 MB; tests/models/test_smollm2.py has it
}
FEW = {"--tasks": "16", "--documents": "8", "--count": "4", "--paragraphs": "2", "--multiple": "1"}
ONE_THREAD = "trainer.threads=1"  # other tests run beside this one
SMALL_EVAL = ("evaluation.tasks=[2]", "evaluation.lengths=[1]", ONE_THREAD)


def filled(line: str) -> list[str]:
    """The words of a command, with names of files that exist and small numbers."""
    words = shlex.split(line)
    if words[1:3] == ["model", "smollm2"]:
        return words
    for place, word in enumerate(words):
        key, mark, value = word.rpartition("=")
        if value in PLACEHOLDERS:
            words[place] = f"{key}{mark}{PLACEHOLDERS[value]}"
        if place and words[place - 1] in FEW:
            words[place] = FEW[words[place - 1]]
    return words


def parse(words: list[str]) -> None:
    """Read a command's options as the command line does, and start nothing."""
    group = typer.main.get_command(app)
    name, *rest = _spelt_out(words)
    group.commands[name].make_context(name, rest)  # type: ignore[attr-defined]


def more(words: list[str]) -> list[str] | None:
    """What is added to a command so that it takes no time; None: it is only parsed."""
    command = words[0]
    text = " ".join(words)
    if command in ("optimize", "serve", "pipeline") or words[:2] == ["model", "smollm2"]:
        return None
    if command == "locomo":  # other models than the embedded one are not there
        return [ONE_THREAD, "--dry-run"] if "size=cpu" in words else None
    if command == "sft" or (command == "train" and "http://" in text):
        return [] if "--cfg" in words else ["--cfg"]
    if command in ("train", "stages"):
        return [ONE_THREAD, *([] if {"--cfg", "--dry-run"} & set(words) else ["--dry-run"])]
    return list(SMALL_EVAL) if command == "eval" and "--data" not in words else []


def made_by(words: list[str]) -> list[str]:
    """The file or folder that a command writes, which a reader does not have yet."""
    if words[0] == "data":
        bare = itertools.takewhile(lambda word: not word.startswith("--") and "=" not in word, words)
        return list(bare)[-1:]
    return [value for option, value in itertools.pairwise(words) if option == "--out"]


def is_new(words: list[str], folder: Path) -> bool:
    """Whether no test has this command yet: what several pages have is run once, by whichever process comes first."""
    name = hashlib.sha256(shlex.join(words).encode()).hexdigest()
    try:
        (folder.parent / f"seen-{name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check(words: list[str], folder: Path) -> None:
    """Run a command of recollect's, or as much of it as is quick."""
    parse(words)
    added = more(words)
    if added is None:
        if words[0] == "pipeline" and (len(words) == 1 or words[1] not in ("mine.yaml", "training_config.yaml")):
            read_plan(None, lambda _: None)
        return
    for place in made_by(words):
        remove(folder / place)
    done = commands.run(*words, *added, cwd=folder, env={"HF_HUB_OFFLINE": "1"})
    if "http://" in " ".join(words) and words[0] != "train":  # what a reader sees who has no server there
        assert done.returncode in (1, 2), done.stdout
        assert "localhost:8000" in done.stderr
        return
    assert done.returncode == 0, f"recollect {' '.join(words)}\n{done.stdout[-1000:]}\n{done.stderr[-1000:]}"


def other(words: list[str]) -> None:
    """A command of another program."""
    if words[0] == "make":
        assert set(words[1:]) <= TARGETS, words
    elif words[0] == "python":
        file = ROOT / words[1]
        assert file.is_file(), words
        assert all(option.partition("=")[0] in file.read_text() for option in words[2:] if option.startswith("--"))
    else:
        raise AssertionError(f"nothing runs this: {' '.join(words)}; write <!-- run: make TARGET --> before the block")


@pytest.mark.parametrize("block", [b for b in SHELL if not b.target], ids=lambda b: b.name)
def test_the_commands_of_a_block_work(block: Block, folder: Path, copy: Path) -> None:
    for line in command_lines(block.text):
        words = filled(line)
        if words[0] != "recollect":
            other(words)
        elif is_new(words, folder):
            check(words[1:], copy)


@pytest.mark.parametrize("block", [b for b in blocks() if b.target], ids=lambda b: b.name)
def test_a_block_that_is_run_elsewhere_names_a_target(block: Block) -> None:
    program, target = block.target.split()
    assert (program, target in TARGETS) == ("make", True)


def test_every_block_has_a_kind() -> None:
    kinds = {"python", "bash", "yaml", "json", "text"}
    assert [b.name for b in blocks() if b.kind not in kinds] == []


def test_commands_in_tables_and_sentences_have_options_that_exist() -> None:
    """`recollect …` between backticks, outside of blocks."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = {c for page in pages for c in re.findall(r"`recollect ([a-z][^`…]* [^`…]+)`", page.read_text())}
    assert len(found) > 20
    for command in sorted(found):
        words = shlex.split(command.replace("\\|", "|"))
        if words[0] != "model" and not {"GLOB", "TEXT"} & set(words):
            assert {word for word in words if word.startswith("--")} <= options_of(words[0]), command


def options_of(name: str) -> set[str]:
    """The options of a command, with those that it takes from VideoMultiAgents' scripts."""
    params = typer.main.get_command(app).commands[name].params  # type: ignore[attr-defined]
    theirs = names_of(name) if name in ("sft", "train") else set()
    return {option for param in params for option in param.opts} | {f"--{key}" for key in theirs} | {"--help"}


def test_the_commands_of_the_readmes_table_work(folder: Path, copy: Path) -> None:
    found = re.findall(r"`(recollect [^`]+)`", (ROOT / "README.md").read_text().partition("## What it can train")[2])
    assert len(found) >= 5
    for line in found:
        words = filled(line)
        if line != "recollect train" and is_new(words, folder):
            check(words[1:], copy)


def test_a_command_that_is_wrong_is_noticed(copy: Path) -> None:
    with pytest.raises(AssertionError, match=r"trainer\.seed"):
        check(["train", "trainer.sed=1"], copy)
    with pytest.raises(Exception, match="--baselin"):
        check(["eval", "tiny", "--baselin", "concat"], copy)
    with pytest.raises(KeyError, match="trane"):
        check(["trane"], copy)
    with pytest.raises(AssertionError, match="nothing runs this"):
        other(["pip", "install", "x"])
