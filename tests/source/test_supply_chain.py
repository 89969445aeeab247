"""What is built with, and by what: each action, image and package is named by a digest."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.imports import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
IMAGE, BUILD = "deploy/docker/requirements.txt", "deploy/docker/build-requirements.txt"
RELEASE, AUDIT = ".github/requirements/release.txt", ".github/requirements/audit.txt"


def wanted_by_extra(*names):
    """Requirements of these extras, and of those that they name."""
    extras = PROJECT["project"]["optional-dependencies"]
    for text in [text for name in names for text in extras[name]]:
        wanted = Requirement(text)
        if wanted.name == PROJECT["project"]["name"]:
            yield from wanted_by_extra(*wanted.extras)
        else:
            yield wanted


LOCKS = {
    IMAGE: [
        *map(Requirement, PROJECT["project"]["dependencies"]),
        *wanted_by_extra("server", "admin"),
    ],
    BUILD: list(map(Requirement, PROJECT["build-system"]["requires"])),
    RELEASE: list(map(Requirement, PROJECT["dependency-groups"]["release"])),
    AUDIT: list(map(Requirement, PROJECT["dependency-groups"]["audit"])),
}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_what_the_project_asks_for(lock):
    locked = {}
    for entry in re.split(r"\n(?=\w)", (ROOT / lock).read_text(encoding="utf-8"))[1:]:
        name, version = re.match(r"([\w.-]+)==([^\s;\\]+)", entry).groups()
        locked[canonicalize_name(name)] = version
        assert "--hash=sha256:" in entry, name
    assert LOCKS[lock]
    for wanted in LOCKS[lock]:
        assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)]), (
            f"make locks: {wanted}"
        )


def steps_of(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_names_actions_by_commit_and_packages_by_hash(path):
    for step in steps_of(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])
        for line in step.get("run", "").splitlines():
            is_ours = "dist/" in line  # what was built here
            assert "pip install" not in line or is_ours or "--require-hashes" in line, line
    text = path.read_text(encoding="utf-8")
    # People, and Dependabot, read the version behind it.
    assert text.count("uses:") == len(re.findall(r"uses: \S+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", text))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_what_may_more_is_a_job(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for step in steps_of(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_only_a_tag_publishes_and_the_job_that_does_runs_nothing_of_ours():
    workflow = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    (name,) = (name for name, job in jobs.items() if "id-token" in job.get("permissions", {}))
    assert "startsWith(github.ref, 'refs/tags/v')" in jobs[name]["if"]
    assert jobs[name]["environment"]["name"] == "pypi"
    assert set(jobs[name]["needs"]) == set(jobs) - {name}
    commands = [step["run"] for step in jobs[name]["steps"] if "run" in step]
    assert not [line for line in commands if "python" in line or "pip" in line]
    assert not [step for step in jobs[name]["steps"] if "checkout" in step.get("uses", "")]


def test_an_image_is_built_on_a_digest_and_from_the_locks():
    text = (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?", text, re.MULTILINE)
    names = {name for _, name in stages}
    assert stages
    for image, _ in stages:
        assert image in names or re.search(r"@sha256:[0-9a-f]{64}$", image)
    installs = re.findall(
        r"install [^&]*", re.sub(r"apt-get install[^&]*|install -d[^&]*", "", text)
    )
    assert all("--require-hashes" in each or "--no-deps" in each for each in installs)
    assert {IMAGE, BUILD} <= set(re.findall(r"-r +(\S+)", text))


def test_what_is_pinned_is_kept_fresh():
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))[
        "updates"
    ]
    found = {}
    for each in updates:
        folders = each.get("directories") or [each["directory"]]
        found.setdefault(each["package-ecosystem"], set()).update(folders)
    assert found["github-actions"] == {"/"}
    assert found["docker"] == {"/deploy/docker"}
    assert {f"/{lock.rpartition('/')[0]}" for lock in LOCKS} <= found["pip"]
    modules = [
        path
        for place in ("benchmarks", "examples", "tests")
        for path in (ROOT / place).rglob("go.mod")
    ]
    assert found["gomod"] == {f"/{path.parent.relative_to(ROOT)}" for path in modules}
