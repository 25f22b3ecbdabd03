"""What is remembered of applied children."""

import msgspec

from coder_k8s.kube.applied import AppliedChildren
from coder_k8s.kube.kinds import ROLE, SERVICE_ACCOUNT
from coder_k8s.kube.objects import Unstructured


def known(name: str, uid: str, version: str = "1") -> Unstructured:
    metadata = {"namespace": "coder", "name": name, "uid": uid, "resourceVersion": version}
    return Unstructured.decode(msgspec.json.encode({"metadata": metadata}))


def test_the_uid_of_a_child_shows_that_it_is_created_again() -> None:
    """Not that of another owner, nor of one that the operator itself deleted."""
    applied, owner = AppliedChildren(), known("demo", "1")
    first, second = known("demo", "a"), known("demo", "b")
    assert applied.uid(SERVICE_ACCOUNT, owner, first.key) == ""
    applied.record(SERVICE_ACCOUNT, owner, first)
    applied.record(ROLE, owner, second)
    assert applied.uid(SERVICE_ACCOUNT, owner, first.key) == "a"
    assert applied.uid(ROLE, owner, first.key) == "b"
    applied.record(SERVICE_ACCOUNT, owner, second)
    assert applied.uid(SERVICE_ACCOUNT, owner, first.key) == "b"
    assert applied.uid(SERVICE_ACCOUNT, known("demo", "2"), first.key) == "", "another owner of the same name"
    applied.remove(SERVICE_ACCOUNT, first.key)
    applied.remove(SERVICE_ACCOUNT, first.key)
    assert applied.uid(SERVICE_ACCOUNT, owner, first.key) == ""
    applied.forget(owner.key)
    assert applied.uid(ROLE, owner, first.key) == ""


def test_only_the_same_object_in_the_same_version_has_the_manifest() -> None:
    applied, owner = AppliedChildren(), known("demo", "1")
    applied.record(ROLE, owner, known("demo", "a", "7"), "digest")
    assert applied.is_recorded(ROLE, known("demo", "a", "7"), "digest")
    assert not applied.is_recorded(ROLE, known("demo", "a", "7"), "other")
    assert not applied.is_recorded(ROLE, known("demo", "a", "8"), "digest")
    assert not applied.is_recorded(ROLE, known("demo", "b", "7"), "digest"), "after a restore of etcd"
    assert not applied.is_recorded(SERVICE_ACCOUNT, known("demo", "a", "7"), "digest")
    applied.record(ROLE, owner, known("demo", "a", "7"))
    assert not applied.is_recorded(ROLE, known("demo", "a", "7"), "digest"), "it is being deleted"
