"""`osmosis-platform doctor`: what is active, what is weak and why."""

from __future__ import annotations

from pathlib import Path

import click

from osmosis_platform.cli.main import DATA_DIR, read_settings
from osmosis_platform.cli.tables import AS_JSON, show

_MARKS = {"ok": "ok  ", "weak": "weak", "bad": "BAD "}


@click.command("doctor")
@AS_JSON
@DATA_DIR
def command(as_json: bool, data_dir: Path | None) -> int:
    """Check what is active, what is weak and why. Exits 1 when something is wrong."""
    from osmosis_platform.ops.checkup import examine

    findings = examine(read_settings(data_dir=data_dir, log_level="error"))
    bad = [finding for finding in findings if finding.state == "bad"]
    if as_json:
        show(["What", "State", "Text"], [[one.what, one.state, one.text] for one in findings], empty="", as_json=True)
        return 1 if bad else 0
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        click.echo(f"{_MARKS[finding.state]}  {finding.what.ljust(width)}  {finding.text}")
    if bad:
        click.echo(f"\n{len(bad)} of {len(findings)} checks failed.", err=True)
    return 1 if bad else 0
