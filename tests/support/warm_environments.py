"""Makes what the tests need from the registry while there is a network: rollout environments and build backends.

Run by scripts/test before the tests lose the network. Does nothing when all is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import evaluation_workspace
from osmosis_ai.evaluation.environment import prepare_environment
from osmosis_ai.workspace.scaffold import TEMPLATE_ROOT, scaffold_rollout


def run_uv(project: Path, command: list[str], environ: dict[str, str]) -> tuple[int, list[str]]:
    done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def main() -> None:
    os.environ["XDG_CACHE_HOME"] = str(evaluation_workspace.CACHE)
    tree = evaluation_workspace.CACHE / "warm"  # a place that stays: an environment belongs to its rollout's folder
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(TEMPLATE_ROOT / "rollouts", tree / "rollouts")
    (tree / "rollouts/loop").mkdir()
    (tree / "rollouts/loop/pyproject.toml").write_text(evaluation_workspace.PYPROJECT)
    scaffold_rollout(tree, "scaffolded", force=True)
    for project in sorted((tree / "rollouts").iterdir()):
        prepare_environment(project, run_uv=partial(run_uv, project), log=lambda line: print(line, file=sys.stderr))


if __name__ == "__main__":
    main()
