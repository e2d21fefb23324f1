"""All results of docs/results.md on one machine, side by side, within a time limit.

    python benchmarks/real/side_by_side.py --data DIR --model DIR --out DIR --embedding DIR --seconds 570
    python benchmarks/real/side_by_side.py … --prepare          # the data files alone
    python benchmarks/real/side_by_side.py … --size smoke       # everything to its end, with hardly any training
    python benchmarks/real/side_by_side.py … --part cpu         # the variants for two cores, each on two of its own

Jobs (`jobs.py`) start in order of importance as far as memory and cores go. One that trains is asked to save and stop
in time for what follows it. Small results of each part are packed into OUT/packed/PART.tar.gz whenever one of its
jobs ends, so that nothing is lost when the time is over; `OUT/packed/progress.txt` says what happened when. What is
there already is not made again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from archive import pack
from jobs import SEVERAL_ON_A_GPU, Job, Places, Sizes, all_jobs, data_jobs

GRACE = 20.0  # seconds between asking a job to stop and ending it
KEEP_BACK = 6.0  # seconds at the end in which nothing runs but packing
PACK_EVERY = 45.0  # seconds
MOST_CORES = 4  # of one job's tokenizer
BAD_INPUT = 2  # the exit code of a command that would fail again
SIZES = {
    "full": Sizes(
        sft={"concat": 200, "rag": 240, "once": 120, "closed": 120},
        rl={"gsm8k": 50, "gsm8k-none": 36, "search": 30},
        extra=SEVERAL_ON_A_GPU,
    ),
    "smoke": Sizes(
        lengths=(2, 3),
        seeds=(0,),
        sft=dict.fromkeys(("memory", "concat", "rag", "gsm8k", "gsm8k-none", "search", "once", "closed"), 2),
        rl=dict.fromkeys(("memory", "gsm8k", "gsm8k-none", "search", "stage-memory", "stage-qa"), 1),
        extra=(
            *("data.train_max_samples=12", "data.train_batch_size=2", "actor_rollout_ref.rollout.n=2"),
            *("sft.batch_size=4", "data.val_max_samples=2", "sft.optim.lr_warmup_steps=0"),
        ),
        cpu=(
            *("data.train_max_samples=8", "data.val_max_samples=2", "data.train_batch_size=2", "sft.batch_size=2"),
            *("sft.steps=1", "actor_rollout_ref.rollout.n=2", "sft.optim.lr_warmup_steps=0"),
        ),
        tests=4,
    ),
}


@dataclass
class Running:
    """A job under way."""

    job: Job
    process: subprocess.Popen[bytes]
    began: float
    asked: float | None = None  # when it was asked to stop


@dataclass
class Sitting:
    """All jobs within one time limit."""

    at: Places
    seconds: float
    gigabytes: float
    cores: list[int]
    python: str
    environment: dict[str, str]
    began: float = field(default_factory=time.monotonic)
    running: list[Running] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)  # exit codes by name
    kept: dict[str, list[int]] = field(default_factory=dict)  # cores that a job has for itself
    parts: dict[str, list[str]] = field(default_factory=dict)  # the jobs of each
    waiting: list[Job] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)

    def run(self, jobs: list[Job]) -> None:
        """Run what can be run, until all is done or the time is over."""
        self.waiting = [job for job in jobs if not self._done(job)]
        packed = self.now
        while (self.waiting or self.running) and self.now < self.seconds - KEEP_BACK:
            self._collect()
            self.waiting = [job for job in self.waiting if not self._impossible(job)]
            for job in [job for job in self.waiting if self._may_start(job)]:
                if self._may_start(job):  # those before it take something
                    self.waiting.remove(job)
                    self._start(job)
            for one in self.running:
                self._hurry(one)
            if self.now - packed > PACK_EVERY:
                packed = self.now
                self._pack({one.job.part for one in self.running})
            time.sleep(0.25)
        for one in self.running:
            self._end(one.process, signal.SIGKILL)
            self.say(f"cut off: {one.job.name}")
        for job in self.waiting:
            self.say(f"never started: {job.name}")
        self._pack({job.part for job in jobs})
        self.say("done")

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        line = f"{self.now:6.1f} s  {text}"
        print(line, flush=True)
        with (self.at.out / "packed" / "progress.txt").open("a") as file:
            file.write(line + "\n")

    # ---- one job ----

    def _done(self, job: Job) -> bool:
        """Whether an earlier sitting did it."""
        if not (self.at.out / "logs" / f"{job.name}.done").exists():
            return False
        self.ended[job.name] = 0
        return True

    def _impossible(self, job: Job) -> bool:
        """Whether what it needs cannot come any more."""
        makers = [name for name in self.ended if job.after in (name, "")]
        missing = [path for path in job.needs if not path.exists()]
        lost = bool(missing) and bool(job.after) and bool(makers)
        late = job.trains and self.now > 0.8 * job.until * self.seconds
        if lost or late:
            self.say(f"left out: {job.name}, " + (f"{missing[0]} is missing" if lost else "too late to begin"))
            self.ended[job.name] = -1
        return lost or late

    def _may_start(self, job: Job) -> bool:
        if job.after and job.after not in self.ended:
            return False
        if not all(path.exists() for path in job.needs):
            return False
        if job.cores:
            return len(self._free_cores()) >= job.cores
        used = sum(one.job.gigabytes for one in self.running if not one.job.cores)
        return not used or used + job.gigabytes <= self.gigabytes

    def _free_cores(self) -> list[int]:
        taken = {core for cores in self.kept.values() for core in cores}
        return [core for core in self.cores if core not in taken]

    def _start(self, job: Job) -> None:
        words = list(job.words)
        command = [self.python, *words] if words[0].endswith(".py") else [self.python, "-m", "recollect", *words]
        cores = self._free_cores()
        if job.cores:
            cores = self.kept[job.name] = cores[-job.cores :]
        own = dict(self.environment)
        if job.part == "cpu":
            own |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(job.cores), "RAYON_NUM_THREADS": str(job.cores)}
        if job.later and not job.cores:
            own["CUDA_MPS_CLIENT_PRIORITY"] = "1"
        with (self.at.out / "logs" / f"{job.name}.log").open("ab") as log:
            log.write(f"$ recollect {' '.join(words)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=own, start_new_session=True
            )
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setaffinity(process.pid, cores)
        self.running.append(Running(job, process, self.now))
        self.say(f"start {job.name}")

    def _hurry(self, one: Running) -> None:
        """Ask a job that trains to save and stop once its time is over; end it when it does not."""
        limit = one.job.until * self.seconds
        if one.asked is None and one.job.trains and self.now > limit:
            one.asked = self.now
            self._end(one.process, signal.SIGINT)
            self.say(f"asked to stop: {one.job.name}")
        elif one.asked is not None and self.now > one.asked + GRACE:
            self._end(one.process, signal.SIGKILL)

    @staticmethod
    def _end(process: subprocess.Popen[bytes], number: int) -> None:
        try:
            if number == signal.SIGINT:
                process.send_signal(number)
            else:
                os.killpg(process.pid, number)
        except ProcessLookupError:
            pass

    def _collect(self) -> None:
        """Take note of jobs that have ended, and pack what they left."""
        over = [one for one in self.running if one.process.poll() is not None]
        self.running = [one for one in self.running if one.process.poll() is None]
        for one in over:
            code = one.process.returncode
            self.ended[one.job.name] = code
            self.kept.pop(one.job.name, None)
            self.say(f"end {one.job.name}: {code}, {self.now - one.began:.0f} s")
            if code == 0:
                (self.at.out / "logs" / f"{one.job.name}.done").touch()
            elif self._again(one, code):
                self.failed.add(one.job.name)
                del self.ended[one.job.name]
                self.waiting.append(one.job)
        if over:
            self._pack({one.job.part for one in over})

    def _again(self, one: Running, code: int) -> bool:
        """Whether a job that has failed is tried once more."""
        chosen = code == BAD_INPUT or one.asked is not None
        return not chosen and one.job.name not in self.failed and self.now < 0.6 * self.seconds

    def _pack(self, parts: set[str]) -> None:
        for part in sorted(parts - {"data"}):
            pack(part, self.parts[part], self.at.out, self.at.out / "packed")


def environment_of(args: argparse.Namespace) -> dict[str, str]:
    """What jobs are started with: few threads each, since many run at once."""
    own = {"OMP_NUM_THREADS": "2", "RAYON_NUM_THREADS": str(MOST_CORES), "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    return {**os.environ, **own, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "true"}


def stop_mps(own: dict[str, str]) -> None:
    """End the service."""
    if "CUDA_MPS_PIPE_DIRECTORY" in own:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=own, timeout=20, check=False)


def start_mps(own: dict[str, str], python: str, out: Path) -> bool:
    """Let processes compute on the GPU at the same time, if the driver's service for that works here."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return False
    places = {"CUDA_MPS_PIPE_DIRECTORY": str(out / "mps"), "CUDA_MPS_LOG_DIRECTORY": str(out / "logs")}
    (out / "mps").mkdir(exist_ok=True)
    trial = "import torch; x = torch.ones(256, 256, device='cuda'); assert (x @ x).sum().item() == 256 ** 3"
    try:
        subprocess.run([control, "-d"], env={**own, **places}, timeout=20, check=True)
        subprocess.run([python, "-c", trial], env={**own, **places}, timeout=60, check=True)
    except (subprocess.SubprocessError, OSError):
        stop_mps({**own, **places})
        return False
    own.update(places)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--embedding", type=Path)
    parser.add_argument("--seconds", type=float, default=570.0)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--gigabytes", type=float, default=118.0, help="of the GPU's memory, for all jobs")
    parser.add_argument("--cores", type=int, default=0, help="use the first so many cores; 0: all")
    parser.add_argument("--part", action="append", help="memory, gsm8k, search, stages or cpu; default: all but cpu")
    parser.add_argument("--prepare", action="store_true", help="make the data files and stop")
    parser.add_argument("--mps", choices=("auto", "off"), default="auto")
    args = parser.parse_args()
    out = args.out.resolve()
    for name in ("logs", "packed", "data"):
        (out / name).mkdir(parents=True, exist_ok=True)
    at = Places(args.data.resolve(), args.model.resolve(), out, args.embedding and args.embedding.resolve())
    cores = sorted(os.sched_getaffinity(0))[: args.cores or None]
    sitting = Sitting(at, args.seconds, args.gigabytes, cores, sys.executable, environment_of(args))
    sitting.run(data_jobs(at, SIZES[args.size]))
    if args.prepare:
        return
    parts = args.part or ["memory", "gsm8k", "search", "stages"]
    jobs = [job for job in all_jobs(at, SIZES[args.size]) if job.part in parts]
    sitting.parts = {part: [job.name for job in jobs if job.part == part] for part in parts}
    if args.mps == "auto" and any(not job.cores for job in jobs):
        sitting.say("mps: " + ("on" if start_mps(sitting.environment, sys.executable, out) else "off"))
    sitting.run(jobs)
    if args.mps == "auto":
        stop_mps(sitting.environment)


if __name__ == "__main__":
    main()
