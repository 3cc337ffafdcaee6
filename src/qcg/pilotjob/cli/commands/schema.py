"""`qcg-pm schema`: print the JSON Schema of request files."""

from __future__ import annotations

import click
import msgspec

from qcg.pilotjob.description.schema import request_file_schema


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of request files, for editors that complete and check them."""
    click.echo(msgspec.json.format(msgspec.json.encode(request_file_schema()), indent=2).decode())
