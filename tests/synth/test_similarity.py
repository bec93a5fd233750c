"""Near-duplicates and clusters on realistic descriptions, and with vectors given by hand."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from awm.config import ConfigError, EmbeddingConfig, LLMConfig
from awm.llm.errors import ProviderError
from awm.synth.similarity import OpenAIEmbedder, TfidfEmbedder, concept_clusters, make_embedder, near_duplicates

HERE = Path(__file__).parent
SEEDS = HERE.parents[1] / "data" / "seeds" / "applications.txt"
APPLICATIONS = json.loads((HERE / "paraphrases.json").read_text(encoding="utf-8"))
TEXTS = [application["text"] for application in APPLICATIONS]
REWORDINGS = [application["rewording"] for application in APPLICATIONS]
NEIGHBOURS = [application["neighbour"] for application in APPLICATIONS]
THRESHOLD = 0.45
LLM = {
    "provider": "openai",
    "model": "m",
    "max_output_tokens": 100,
    "structured_output": "off",
    "concurrency": 2,
    "timeout_s": 5,
    "retries": 0,
}


class GivenVectors:
    """Embeds texts as the unit vectors at given angles, in degrees."""

    def __init__(self, angles):
        self.angles = angles

    def embed(self, texts):
        angles = np.radians([self.angles[text] for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_vectors_have_length_one():
    vectors = TfidfEmbedder().embed([*TEXTS, ""])
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1).tolist() == pytest.approx([1.0] * len(TEXTS) + [0.0], abs=1e-6)


@pytest.mark.parametrize("texts", [[], [""], ["", "!?"], ["the of and"], ["x"], ["日本語"]])
def test_odd_texts(texts):
    assert TfidfEmbedder().embed(texts).shape[0] == len(texts)


def test_rewordings_are_duplicates_and_neighbours_are_not():
    embedder = TfidfEmbedder()
    matches = near_duplicates(embedder, TEXTS, REWORDINGS, THRESHOLD)
    assert [match and match[0] for match in matches] == list(range(len(TEXTS)))
    assert near_duplicates(embedder, TEXTS, NEIGHBOURS, THRESHOLD) == [None] * len(NEIGHBOURS)


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda application: application["topic"])
def test_two_texts_alone_are_told_apart_as_well(application):
    embedder = TfidfEmbedder()
    ((index, similarity),) = near_duplicates(embedder, [application["text"]], [application["rewording"]], THRESHOLD)
    assert index == 0
    assert similarity > 0.55
    assert near_duplicates(embedder, [application["text"]], [application["neighbour"]], 0.25) == [None]


def test_no_seed_repeats_another():
    seeds = SEEDS.read_text(encoding="utf-8").splitlines()
    assert len(seeds) == 100
    assert seeds == [seed.strip() for seed in seeds]
    assert near_duplicates(TfidfEmbedder(), [], seeds, THRESHOLD) == [None] * 100


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("Online Book Store", "online bookstore"),
        ("Car Rentals", "car rental"),
        ("Wine Cellar", "personal wine cellar"),
        ("LedgerLeaf", None),
    ],
)
def test_names_that_repeat_a_seed(name, seed):
    seeds = SEEDS.read_text(encoding="utf-8").splitlines()
    (match,) = near_duplicates(TfidfEmbedder(), seeds, [name], THRESHOLD)
    assert (match and seeds[match[0]]) == seed


ANGLES = {"a": 0, "b": 10, "c": 20, "d": 90, "e": 92, "f": 180}


@pytest.mark.parametrize(
    ("kept", "candidates", "degrees", "expected"),
    [
        ("", "", 15, []),
        ("a", "", 15, []),
        ("", "a", 15, [None]),
        ("a", "b", 15, [0]),
        ("a", "b", 5, [None]),
        # c resembles b only, and b is a duplicate itself: greedy, in order
        ("a", "bc", 15, [0, None]),
        ("a", "cb", 15, [None, 0]),
        ("", "dea", 15, [None, 0, None]),
        # the most similar, not the first
        ("ac", "b", 15, [0]),
        ("adc", "e", 90, [1]),
        ("af", "d", 80, [None]),
        ("", "aa", 15, [None, 0]),
    ],
)
def test_near_duplicates(kept, candidates, degrees, expected):
    threshold = round(float(np.cos(np.radians(degrees))), 6)
    matches = near_duplicates(GivenVectors(ANGLES), list(kept), list(candidates), threshold)
    assert [match and match[0] for match in matches] == expected
    for match in matches:
        assert match is None or match[1] >= threshold


def test_candidates_can_be_compared_with_kept_texts_only():
    matches = near_duplicates(GivenVectors(ANGLES), ["d"], ["a", "a", "e"], 0.9, among_candidates=False)
    assert matches == [None, None, (0, 0.999391)]


@pytest.mark.parametrize(
    ("texts", "threshold", "expected"),
    [
        ("", 0.5, []),
        ("a", 0.5, [0]),
        ("da", 0.5, [0, 1]),
        ("dabe", 0.9, [0, 1, 1, 0]),
        ("adf", 0.5, [0, 1, 2]),
        ("aa", 1.0, [0, 0]),
        ("ad", 1e-9, [0, 0]),
        # average linkage: the mean of a-c and b-c decides
        ("abc", 0.95, [0, 0, 0]),
        ("abc", 0.97, [0, 0, 1]),
    ],
)
def test_concept_clusters(texts, threshold, expected):
    vectors = GivenVectors(ANGLES).embed(texts) if texts else np.zeros((0, 2), dtype=np.float32)
    assert concept_clusters(vectors, threshold) == expected


def test_rewordings_share_a_cluster():
    vectors = TfidfEmbedder().embed([*TEXTS, *REWORDINGS])
    assert concept_clusters(vectors, 0.15) == [*range(len(TEXTS))] * 2


SCRIPT = """
import json, sys
from awm.synth.similarity import TfidfEmbedder, concept_clusters, near_duplicates
texts = json.load(sys.stdin)
embedder = TfidfEmbedder()
print(near_duplicates(embedder, texts[:8], texts[8:], 0.1), concept_clusters(embedder.embed(texts), 0.15))
"""


def test_results_are_the_same_in_every_process_and_with_any_number_of_threads():
    found = set()
    for threads, seed in (("1", "0"), ("4", "123")):
        variables = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            input=json.dumps([*TEXTS, *REWORDINGS, *NEIGHBOURS]),
            env=os.environ | variables,
            cwd=HERE.parents[1],
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(hashlib.sha256(done.stdout.encode()).hexdigest())
    assert len(found) == 1


def settings(**values):
    return EmbeddingConfig(**{"provider": "tfidf", "threshold": 0.5, "cluster_threshold": 0.5, **values})


def test_tfidf_needs_nothing():
    assert isinstance(make_embedder(settings(), LLMConfig(**LLM)), TfidfEmbedder)


@pytest.mark.skipif(find_spec("sentence_transformers") is not None, reason="the extra is installed")
def test_a_missing_extra_names_its_install_command():
    with pytest.raises(ConfigError, match=r"pip install 'awm\[embeddings\]'"):
        make_embedder(settings(provider="sentence-transformers"), LLMConfig(**LLM))


class Embeddings(BaseHTTPRequestHandler):
    """A server that embeds each text as (length, 1)."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, request["model"], request["input"]))
        vectors = [
            {"object": "embedding", "index": n, "embedding": [len(text), 1.0]}
            for n, text in enumerate(request["input"])
        ]
        body = json.dumps(
            {"object": "list", "model": "e", "data": vectors, "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Embeddings) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


async def _embed_inside_an_event_loop(embedder, texts):
    return embedder.embed(texts)


@pytest.mark.asyncio
async def test_openai_embeds_each_text_once_also_inside_an_event_loop(server):
    config = LLMConfig(**LLM, base_url=f"http://127.0.0.1:{server.server_port}/v1")
    embedder = make_embedder(settings(provider="openai", model="e"), config)
    assert isinstance(embedder, OpenAIEmbedder)
    vectors = await _embed_inside_an_event_loop(embedder, ["aaa", "", "aaa"])
    assert vectors.tolist() == [
        pytest.approx([0.9486833, 0.3162278]),
        [0.0, 1.0],
        pytest.approx([0.9486833, 0.3162278]),
    ]
    assert (await _embed_inside_an_event_loop(embedder, ["", "b"])).shape == (2, 2)
    assert [(path, model) for path, model, _ in server.asked] == [("/v1/embeddings", "e")] * 2
    assert [texts for _, _, texts in server.asked] == [["aaa", ""], ["b"]]


def test_openai_without_a_key():
    embedder = make_embedder(settings(provider="openai"), LLMConfig(**LLM))
    with pytest.raises(ProviderError, match="OPENAI_API_KEY"):
        embedder.embed(["a"])
