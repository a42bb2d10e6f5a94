"""What a release says of itself: the same version, authors and licence in each of its files."""

import re
import tomllib

import yaml
from test_pages import ROOT

import tlm_ray

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_all_files_name_the_same_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert changes[0] == citation["version"] == tlm_ray.__version__ == PROJECT["version"]
    assert (citation["title"], citation["license"]) == (PROJECT["name"], PROJECT["license"])


def test_the_citation_is_that_of_the_readme():
    (paper,) = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    readme = (ROOT / "README.md").read_text()
    assert f"*{paper['title']}*" in readme and f"]({paper['url']})" in readme
    assert all(author["family-names"] in readme for author in paper["authors"])
