"""Embeddings by sentence-transformers, with a real if tiny model that the test makes itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from awm.config import ConfigError, EmbeddingConfig
from awm.synth.similarity import SentenceTransformerEmbedder, near_duplicates

pytest.importorskip("sentence_transformers", reason="needs the extra 'embeddings'")

TEXTS = ["boats are moored in a harbour", "singers rehearse a score", "boats are moored in the harbour"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one layer with random weights, on disk."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("model")
    words = sorted({word for text in TEXTS for word in text.split()})
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    torch.manual_seed(0)
    settings = BertConfig(
        vocab_size=5 + len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertModel(settings).save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"))
    SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save(str(folder / "sentence"))
    return folder / "sentence"


def test_vectors_have_length_one_and_are_the_same_every_time(model: Path) -> None:
    first, second = (SentenceTransformerEmbedder(str(model)).embed(TEXTS) for _ in range(2))

    assert first.shape == (3, 32)
    assert np.allclose(np.linalg.norm(first, axis=1), 1.0, atol=1e-6)
    assert np.array_equal(first, second)


def test_the_nearest_text_is_found(model: Path) -> None:
    matches = near_duplicates(SentenceTransformerEmbedder(str(model)), [], TEXTS, threshold=0.95)

    assert matches[:2] == [None, None]
    assert matches[2] is not None
    assert matches[2][0] == 0


def test_a_model_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"scenarios\.embedding\.model = .*no_model") as error:
        SentenceTransformerEmbedder(str(tmp_path / "no_model"))

    assert "\n" not in str(error.value)
    assert EmbeddingConfig(provider="sentence-transformers", threshold=0.85, cluster_threshold=0.5).model is None
