"""The pages of cluster/: the files they name, the commands they give, and the prices they work out."""

import re
import runpy
import shlex
import sys
from collections.abc import Iterator

import pytest
from cluster_files import CLUSTER, KUBERNETES, MACHINES, PLAIN_KUBERNETES, ROOT, leaves, load_all

import tlm_ray
from tlm_ray.runs.cli import table

PAGES = sorted(CLUSTER.glob("*.md"))


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each call of an experiment in the pages and files: its script and its words."""
    texts = [page.read_text().replace("\\\n", " ") for page in PAGES]
    for name in (*KUBERNETES, *PLAIN_KUBERNETES):
        texts += [value for document in load_all(name) for _, value in leaves(document) if isinstance(value, str)]
    for text in texts:
        for script, rest in re.findall(r"python (experiments/\w+\.py)([^\n]*)", text):
            yield script, shlex.split(rest.partition(" ||")[0], comments=True)


class Read(Exception):
    """A script has read its command line."""


@pytest.mark.parametrize(("script", "words"), list(commands()))
def test_command_has_options_that_its_script_has(script: str, words: list[str], tmp_path, monkeypatch) -> None:
    parse = tlm_ray.parse

    def stop(kind, description):
        raise Read(parse(kind, description))

    for place in (tlm_ray, table):
        monkeypatch.setattr(place, "parse", stop)
    monkeypatch.setattr(sys, "argv", [script, *(word.replace("s3://BUCKET", str(tmp_path)) for word in words)])
    with pytest.raises(Read):
        runpy.run_path(str(ROOT / script), run_name="__main__")


def test_pages_name_files_that_exist_and_all_of_them() -> None:
    text = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"\b(?:cluster|experiments|benchmarks|tests|docs)/[\w./]*\w", text))
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    assert [link for link in re.findall(r"\]\(([\w./]+)\)", text) if not (CLUSTER / link).is_file()] == []
    watching = {"prometheus.yaml", "prometheusrule.yaml", "podmonitor.yaml", "alerts.yaml", "grafana.json"}
    files = {*KUBERNETES, *PLAIN_KUBERNETES, *MACHINES, *watching, "slurm.sh", "Dockerfile"}
    assert {f"cluster/{name}" for name in files} <= named
    assert files | {page.name for page in PAGES} | {"Dockerfile.dockerignore"} == {f.name for f in CLUSTER.iterdir()}


def test_a_token_that_is_there_already_is_closed_to_other_users_too() -> None:
    """`ray get-auth-token --generate` keeps it, with the mode that an earlier `ray.init` gave it."""
    texts = [file.read_text() for file in CLUSTER.iterdir()]
    closed = r"\(umask 077 && ray get-auth-token --generate ?> ?/dev/null\)(?: &&|.*\n) ?chmod 600 ~/\.ray/auth_token"
    counts = [(len(re.findall(closed, text)), text.count("--generate")) for text in texts]
    assert sum(found for found, _ in counts) == 4 and all(found == asked for found, asked in counts)


def test_prices_are_what_their_assumptions_come_to() -> None:
    section = (CLUSTER / "README.md").read_text().partition("## Sizes and prices")[2].partition("\n## ")[0]
    table = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in section.splitlines() if line[:1] == "|"]
    columns = list(zip(*(row[1:] for row in table if not row[0].startswith("---")), strict=True))
    assert len(columns) == 4
    for _, *cells in columns:
        corpus, count, search, cpus, cpu_hours, training, gpu_hours, head, price = map(float, cells)
        assert count == pytest.approx(corpus / 0.06 / 3600, abs=0.005)
        assert search == pytest.approx(corpus / 0.008 / 3600, abs=0.005)
        assert cpu_hours == pytest.approx(count + search + cpus * 10 / 60, abs=0.06)
        assert gpu_hours == pytest.approx(3 * training + 3 * 7 / 60, abs=0.06)
        assert head == pytest.approx(4 * (training + 0.25), abs=0.06)
        assert price == pytest.approx(0.05 * (cpu_hours + head) + 2.5 * gpu_hours, abs=0.6)
