"""What GitHub reads: forms, workflows and the template of pull requests."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from support.imports import ROOT

FOLDER = ROOT / ".github"
SCHEMAS = {
    "vendor.github-issue-config": "ISSUE_TEMPLATE/config.yml",
    "vendor.github-issue-forms": "ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-workflows": "workflows/*.yml",
}


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_it_has_the_shape_that_github_wants(schema):
    files = [str(path) for path in sorted(FOLDER.glob(SCHEMAS[schema]))]
    assert files
    # Of their own: nothing is fetched, the schemas come with the tool.
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_runs_what_contributors_run():
    workflow = yaml.safe_load((FOLDER / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    commands = [step.get("run", "") for step in workflow["jobs"]["test"]["steps"]]
    assert ".ci/run" in commands
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_workflow_tests_each_version_that_the_package_names():
    workflow = yaml.safe_load((FOLDER / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_what_it_names_is_there():
    names = ["pull_request_template.md", "ISSUE_TEMPLATE/bug.yml", "ISSUE_TEMPLATE/feature.yml"]
    text = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names)
    targets = set(re.findall(r"`make ([a-z-]+)", text))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {
        each for each in targets if not re.search(rf"^{each}:", makefile, re.MULTILINE)
    } == set()
    files = set(re.findall(r"\b(?:docs/|tests/[\w/]+/)?[\w-]+\.(?:md|txt)\b", text))
    assert {each for each in files if not (ROOT / each).is_file()} == set()
