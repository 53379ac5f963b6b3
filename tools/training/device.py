"""boost-run --check-device: whether a device can be used, one line for each thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict

import click

from ...runtime.engine.device_check import check_device
from .. import cli


def report_device(device: str, program: str | None, *, as_json: bool) -> None:
    """Prints what was found; exit status 1 where the device cannot be used."""
    found = check_device(device, None if program is None else cli.read_program(program))
    if as_json:
        findings = [asdict(finding) for finding in found.findings]
        cli.print_json({"device": found.device, "usable": found.usable, "findings": findings})
    else:
        for line in str(found).splitlines():
            click.echo(cli.safe(line))
    if not found.usable:
        raise click.exceptions.Exit(1)
