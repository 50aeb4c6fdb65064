"""Every guarantee has a test, and every test of a guarantee has its sentence."""

from __future__ import annotations

from .source import ROOT, docs_module


def test_each_guarantee_has_a_test_and_each_id_in_a_test_is_a_guarantee() -> None:
    guarantees = docs_module("_guarantees")
    listed = [each for held in guarantees.sentences().values() for each in held]
    assert sorted(listed) == sorted(guarantees.proofs())


def test_the_page_lists_every_guarantee_with_its_tests() -> None:
    guarantees = docs_module("_guarantees")
    page = guarantees.page()
    for held in guarantees.sentences().values():
        for each, sentence in held.items():
            assert f"- {sentence} ({each})\n  - `tests/" in page
    assert guarantees.PLACE in (ROOT / "docs" / "guarantees.md").read_text()


def test_no_guarantee_is_listed_twice() -> None:
    sentences = [sentence for held in docs_module("_guarantees").sentences().values() for sentence in held.values()]
    assert len(set(sentences)) == len(sentences)
