"""How alike two texts are: embeddings, near-duplicates and concept clusters.

Three embedders share one protocol. `TfidfEmbedder` needs no model and no network: words (without English stop words)
and character 4-grams, so that `book store` and `bookstores` have something in common. It compares wording, not meaning.

Measured on tests/synth/paraphrases.json: 8 applications, each described in four ways (name and 78 to 111 words), all 32
texts given together; in brackets with only the two compared:

| pair of texts                              | cosine similarity, lowest to highest |
|--------------------------------------------|--------------------------------------|
| same application, described anew           | 0.66 to 0.76 (lowest 0.58)           |
| same application, every term replaced      | 0.06 to 0.25                         |
| another application of the same field      | 0.03 to 0.19 (highest 0.18)          |
| an application of another field            | 0.02 to 0.15                         |
| names only, two of data/seeds/applications | up to 0.43                           |

So 0.45 is the threshold for duplicates that is recommended for tfidf; 0.85, which suits neural embeddings, would find
none of them. What it can't do: a description in other terms throughout looks like a neighbour. For clusters 0.15 is
recommended: of 8 pairs of neighbours it joins 3, and nothing that does not belong together, so that the number of
clusters is an upper bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from awm.config import ConfigError, EmbeddingConfig, LLMConfig

__all__ = [
    "Embedder",
    "OpenAIEmbedder",
    "SentenceTransformerEmbedder",
    "TfidfEmbedder",
    "concept_clusters",
    "make_embedder",
    "near_duplicates",
]

Vectors: TypeAlias = npt.NDArray[np.float32]

OPENAI_MODEL = "text-embedding-3-small"
SENTENCE_TRANSFORMERS_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

# Sums of floats differ in their last bits between machines and thread counts; a decision must not.
_DIGITS = 6


class Embedder(Protocol):
    """Turns texts into vectors whose dot product is the texts' cosine similarity."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row per text, in order, of length 1 (or 0 for a text without any feature)."""
        ...


class TfidfEmbedder:
    """TF-IDF of words and character 4-grams, fitted on the texts given together.

    Vectors of different calls have nothing to do with each other, and a similarity depends a little on what else is
    given.
    """

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the texts' vectors; their width is the number of different words and 4-grams."""
        # Here, because scikit-learn takes a second to import and most commands never compare texts.
        from sklearn.feature_extraction.text import TfidfVectorizer

        words = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", stop_words="english")
        grams = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", analyzer="char_wb", ngram_range=(4, 4))
        return _normalised(np.hstack([_fitted(words, texts), _fitted(grams, texts)]))


class SentenceTransformerEmbedder:
    """A local model of the sentence-transformers library, on the CPU, so that every machine computes the same."""

    def __init__(self, model: str = SENTENCE_TRANSFORMERS_MODEL) -> None:
        """Load the model. Raises `ConfigError` when the library or the model is missing."""
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise ConfigError(
                "scenarios.embedding.provider is sentence-transformers, which is not installed: "
                "run pip install 'awm[embeddings]', or set the provider to tfidf"
            ) from None
        try:
            loaded: Any = SentenceTransformer(model, device="cpu")
        except (OSError, ValueError) as error:
            reason = (str(error).splitlines() or ["no reason given"])[0]
            raise ConfigError(f"scenarios.embedding.model = {model!r} can't be loaded: {reason}") from None
        self._remembered = _Remembered(
            lambda texts: loaded.encode(texts, convert_to_numpy=True, show_progress_bar=False)
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the texts' vectors; a text seen before is not embedded again."""
        return self._remembered.embed(texts)


class OpenAIEmbedder:
    """Embeddings from the OpenAI-compatible server that `llm` names. They are paid, and not recorded."""

    def __init__(self, config: LLMConfig, model: str = OPENAI_MODEL) -> None:
        """Remember where to ask; nothing is sent yet."""
        self._config = config
        self._model = model
        self._remembered = _Remembered(self._ask)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the texts' vectors; a text seen before is not sent again. Raises `ProviderError` or `ItemError`."""
        return self._remembered.embed(texts)

    def _ask(self, texts: list[str]) -> list[list[float]]:
        from awm.llm.openai_provider import embed

        # In a thread of its own: the caller may run inside an event loop, which can't wait for a second one.
        with ThreadPoolExecutor(max_workers=1) as executor:
            return executor.submit(lambda: asyncio.run(embed(texts, self._config, self._model))).result()


def make_embedder(settings: EmbeddingConfig, llm: LLMConfig) -> Embedder:
    """Return the embedder that `params.yaml` names. Raises `ConfigError` when what it needs is missing."""
    match settings.provider:
        case "tfidf":
            return TfidfEmbedder()
        case "sentence-transformers":
            return SentenceTransformerEmbedder(settings.model or SENTENCE_TRANSFORMERS_MODEL)
        case "openai":
            return OpenAIEmbedder(llm, settings.model or OPENAI_MODEL)


def near_duplicates(
    embedder: Embedder,
    kept: Sequence[str],
    candidates: Sequence[str],
    threshold: float,
    *,
    among_candidates: bool = True,
) -> list[tuple[int, float] | None]:
    """Return, for each candidate, None or the earlier text that it repeats: its index and the cosine similarity.

    Candidates are taken in order and compared with `kept` and, with `among_candidates`, with the candidates before them
    that repeat nothing themselves. The index counts through `kept`, then `candidates`; it names the most similar text
    whose similarity, rounded to 6 digits, is at least `threshold`, the first among equals.
    """
    if not candidates:
        return []
    vectors = embedder.embed([*kept, *candidates])
    similarities = _similarities(vectors[len(kept) :], vectors)
    compared = list(range(len(kept)))
    matches: list[tuple[int, float] | None] = []
    for number, row in enumerate(similarities):
        best = max(compared, key=lambda index: (row[index], -index), default=None)
        if best is not None and row[best] >= threshold:
            matches.append((best, float(row[best])))
            continue
        matches.append(None)
        if among_candidates:
            compared.append(len(kept) + number)
    return matches


def concept_clusters(vectors: Vectors, threshold: float) -> list[int]:
    """Return each text's cluster, numbered from 0 in order of appearance.

    Agglomerative clustering with average linkage: two clusters are joined while the mean cosine similarity between
    their members is at least `threshold`.
    """
    if len(vectors) < 2:
        return [0] * len(vectors)
    from sklearn.cluster import AgglomerativeClustering

    # scikit-learn joins below its limit, not at it.
    limit = 1.0 - threshold + 0.5 * 10**-_DIGITS
    model = AgglomerativeClustering(
        n_clusters=None, metric="precomputed", linkage="average", distance_threshold=max(limit, 0.0)
    )
    labels = model.fit_predict(1.0 - _similarities(vectors, vectors)).tolist()
    order = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [order[label] for label in labels]


class _Remembered:
    """Embeds each text once."""

    def __init__(self, encode: Callable[[list[str]], Any]) -> None:
        self._encode = encode
        self._known: dict[str, npt.NDArray[np.float32]] = {}

    def embed(self, texts: Sequence[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            vectors = _normalised(np.asarray(self._encode(new), dtype=np.float64))
            self._known.update(zip(new, vectors, strict=True))
        if not texts:
            return np.zeros((0, 1), dtype=np.float32)
        return np.stack([self._known[text] for text in texts])


def _fitted(vectorizer: Any, texts: Sequence[str]) -> npt.NDArray[np.float64]:
    try:
        dense: npt.NDArray[np.float64] = vectorizer.fit_transform(texts).toarray()
    except ValueError:  # no text has a single feature
        return np.zeros((len(texts), 1))
    return dense


def _normalised(vectors: npt.NDArray[np.float64]) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0.0, 1.0, lengths)).astype(np.float32)


def _similarities(left: Vectors, right: Vectors) -> npt.NDArray[np.float64]:
    products = left.astype(np.float64) @ right.astype(np.float64).T
    return np.clip(np.round(products, _DIGITS), -1.0, 1.0)
