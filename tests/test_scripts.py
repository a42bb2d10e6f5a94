"""Texts of scripts without spaces: found by a part, seen as a leak, tokenised, and told apart by a linear model."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from tlm_ray.plain.lexing import tokens
from tlm_ray.plain.terms import Terms, learn
from tlm_ray.report.marking import mark
from tlm_ray.retrieval import Analyzer, index_passages, search
from tlm_ray.retrieval.contamination import Contamination
from tlm_ray.training.tokens.tokenizer import train_wordpiece

TEXTS = {
    "Chinese": "我们研究机器学习和自然语言处理的方法",
    "Japanese": "わたしたちは自然言語処理の研究を続けています",
    "Thai": "เราศึกษาการเรียนรู้ของเครื่องและภาษาธรรมชาติ",
}
languages = pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))


@languages
def test_a_query_that_is_part_of_a_passage_finds_it(text):
    others = [other for other in TEXTS.values() if other != text]
    found = search(index_passages([*others, f"。{text}。"]), [text[3:9], f"{text[3:9]} ok", "neither"], k=1)
    assert found.ids.tolist() == [[2], [2], [-1]]


@languages
def test_a_passage_that_holds_a_run_of_an_evaluation_text_is_a_leak(text):
    front, back = text[:14], text[:13]
    assert Contamination([text]).find([f"ก{front}ข", f"語{back}語", "", text]).tolist() == [True, False, False, True]


def test_pairs_that_a_query_has_are_marked_as_one():
    analyzer = Analyzer()
    terms = set(analyzer.terms("机器学习 study"))
    assert mark("研究机器学习, studied: Study", terms, analyzer) == (
        "研究<mark>机器学习</mark>, studied: <mark>Study</mark>"
    )


def test_a_trained_tokenizer_knows_thousands_of_characters_if_texts_need_them():
    draw = np.random.default_rng(0)
    characters = np.array([chr(0x4E00 + i) for i in range(5_000)])
    shares = 1 / np.arange(1, 5_001) ** 0.8
    texts = ["".join(draw.choice(characters, 200, p=shares / shares.sum())) for _ in range(1_000)]
    trained = train_wordpiece(texts, vocabulary=12_000)
    ids = [each for text in texts for each in trained(text, add_special_tokens=False)["input_ids"]]
    assert np.mean(np.array(ids) == trained.unk_token_id) <= 1e-4
    small = train_wordpiece(texts, vocabulary=3_000)
    assert len(set("".join(texts)) & small.get_vocab().keys()) == 1_500, "half of the vocabulary at most"


def test_words_of_a_linear_model_are_scikit_learns_and_pairs():
    texts = ["A naïve reader's re-reading of e-mail in 2024, I say", "кот и пёс", *TEXTS.values()]
    ours, plain = learn(Terms(kind="plain words"), texts)[0].terms, TfidfVectorizer().fit(texts[:2])
    assert set(plain.get_feature_names_out()) == {
        word for word in ours if not {c for text in TEXTS.values() for c in text} & set(word)
    }
    assert {"机器", "器学", "学习"} <= set(ours)


def test_signs_stand_between_words_and_pairs_and_nothing_is_counted_twice():
    assert tokens("[[ a ]], it's 3.5%") == ["[", "[", "a", "]", "]", ",", "it", "'", "s", "3", ".", "5", "%"]
    assert tokens("«кот» 我们研究。😀 ok") == ["«", "кот", "»", "我们", "们研", "研究", "。", "😀", "ok"]
    for text in TEXTS.values():
        assert "".join(dict.fromkeys("".join(tokens(f"{text}!")))) == "".join(dict.fromkeys(f"{text}!"))
