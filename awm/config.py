"""`params.yaml` as pydantic models: every tunable of the pipeline, validated before anything runs.

An unknown key, a missing key or a value of the wrong type is one line that names the key (`ConfigError`).
Floats such as `1e-06`, which `dvc exp run -S` writes and YAML 1.1 reads as text, are accepted as numbers.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

__all__ = [
    "ConfigError",
    "DatabasesConfig",
    "EmbeddingConfig",
    "FilterConfig",
    "LLMConfig",
    "Params",
    "Price",
    "RepairConfig",
    "SandboxConfig",
    "ScenariosConfig",
    "SchemasConfig",
    "TasksConfig",
    "ToolsConfig",
    "ToolsetsConfig",
    "VerifiersConfig",
    "load_params",
]


class ConfigError(ValueError):
    """`params.yaml` can't be used; the message is one line that names the key."""


def _number(value: Any) -> Any:
    """Read text such as `1e-06` as the number it is; leave everything else to pydantic."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


Real = Annotated[float, BeforeValidator(_number)]


class Section(BaseModel):
    """Base of every section of `params.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_as_number(cls, value: Any, info: Any) -> Any:
        """YAML's `yes` is a boolean; pydantic would take it as the number 1."""
        wanted = cls.model_fields[info.field_name].annotation
        kinds = {get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in (wanted, *get_args(wanted))}
        if isinstance(value, bool) and kinds & {int, float}:
            raise ValueError("a number is needed, not a yes/no value")
        return value


class Price(Section):
    """Price of one model, in US dollars per million tokens."""

    input: Real = Field(ge=0)
    cached_input: Real = Field(ge=0)
    output: Real = Field(ge=0)


class LLMConfig(Section):
    """Who answers the pipeline's requests, and how they are sent."""

    provider: Literal["recorded", "openai", "batch"]
    model: str = Field(pattern=r"^\S(.*\S)?$")
    base_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    api_key_env: str = Field(default="OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    temperature: Real | None = Field(default=None, ge=0, le=2)
    max_output_tokens: int = Field(gt=0)
    structured_output: Literal["json_schema", "json_object", "off"]
    concurrency: int = Field(gt=0, le=1000)
    timeout_s: Real = Field(gt=0, le=86_400)
    retries: int = Field(ge=0, le=100)
    recordings: str = "data/recordings"
    batch_dir: str = "batches"
    prices: dict[str, Price] = Field(default_factory=dict)


class RepairConfig(Section):
    """The repair loop that all steps share."""

    max_attempts: int = Field(ge=1, le=20)


class SandboxConfig(Section):
    """Limits for generated code while it is checked."""

    mode: Literal["auto", "strict", "nofs", "off"]
    call_timeout_s: Real = Field(gt=0, le=600)
    verify_timeout_s: Real = Field(gt=0, le=600)
    memory_mb: int = Field(ge=64, le=65_536)


class EmbeddingConfig(Section):
    """How near-duplicate scenarios are found."""

    provider: Literal["tfidf", "openai", "sentence-transformers"]
    model: str | None = None
    threshold: Real = Field(gt=0, le=1, description="Cosine similarity from which two scenarios count as one")
    cluster_threshold: Real = Field(gt=0, le=1, description="Cosine similarity that holds a concept cluster together")


class ScenariosConfig(Section):
    """From seed names to distinct, stateful applications."""

    count: int = Field(ge=1)
    per_request: int = Field(ge=1, le=50)
    examples: int = Field(ge=1, description="Seed names shown in each request")
    max_rounds: int = Field(ge=1)
    max_per_category: int = Field(ge=1)
    seed: int
    embedding: EmbeddingConfig


class TasksConfig(Section):
    """Requests of the logged-in user."""

    per_scenario: int = Field(ge=1, le=50)
    min_multi_step: int = Field(ge=0)
    min_reads: int = Field(ge=0)
    min_writes: int = Field(ge=0)
    min_refusals: int = Field(ge=0)
    duplicate_threshold: Real = Field(gt=0, le=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        total = self.min_multi_step + self.min_reads + self.min_writes + self.min_refusals
        if total > self.per_scenario:
            raise ValueError(f"the minima of the kinds add up to {total}, more than per_scenario = {self.per_scenario}")
        return self


class SchemasConfig(Section):
    """Size of a schema."""

    min_tables: int = Field(ge=1)
    max_tables: int = Field(ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_tables > self.max_tables:
            raise ValueError(f"min_tables = {self.min_tables} is more than max_tables = {self.max_tables}")
        return self


class DatabasesConfig(Section):
    """Size and time of an initial state."""

    min_rows: int = Field(ge=1)
    clock: str = Field(description="The environments' frozen time")

    @field_validator("clock", mode="before")
    @classmethod
    def _clock(cls, value: Any) -> str:
        text = str(value)
        try:
            moment = value if isinstance(value, datetime) else datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            raise ValueError(f"{text!r} is not a time; write it as 'YYYY-MM-DD HH:MM:SS'") from None
        if moment.tzinfo is not None:
            raise ValueError("an environment's time has no zone; write it as 'YYYY-MM-DD HH:MM:SS'")
        return moment.strftime("%Y-%m-%d %H:%M:%S")


class ToolsetsConfig(Section):
    """Size of a toolset."""

    min_tools: int = Field(ge=1)
    max_tools: int = Field(ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_tools > self.max_tools:
            raise ValueError(f"min_tools = {self.min_tools} is more than max_tools = {self.max_tools}")
        return self


class ToolsConfig(Section):
    """How hard a tool module is tried."""

    valid_calls: int = Field(ge=1, description="Calls with arguments from real rows, per tool, until one succeeds")
    max_unreached: Real = Field(ge=0, le=1, description="Share of a module's tools that may never have succeeded")
    seed: int


class VerifiersConfig(Section):
    """What a verifier's request shows."""

    max_rows_shown: int = Field(ge=1, description="Rows of sample data in a verifier's request, per table")


class FilterConfig(Section):
    """What makes an environment good enough to keep."""

    min_tasks: int = Field(ge=1)


class Params(Section):
    """All of `params.yaml`."""

    llm: LLMConfig
    repair: RepairConfig
    sandbox: SandboxConfig
    scenarios: ScenariosConfig
    tasks: TasksConfig
    schemas: SchemasConfig
    databases: DatabasesConfig
    toolsets: ToolsetsConfig
    tools: ToolsConfig
    verifiers: VerifiersConfig
    filter: FilterConfig

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.filter.min_tasks > self.tasks.per_scenario:
            wanted, made = self.filter.min_tasks, self.tasks.per_scenario
            raise ValueError(f"filter.min_tasks = {wanted} is more than tasks.per_scenario = {made}")
        return self


class _UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, which YAML would silently settle by taking the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_params(path: str | os.PathLike[str] = "params.yaml") -> Params:
    """Read and validate the parameters.

    Raises ConfigError with one line when the file is missing, is not YAML, or holds an unknown or ill-typed key.
    """
    path = Path(path)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except FileNotFoundError:
        raise ConfigError(f"{path}: not found; run from the project's top folder") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected sections such as 'llm:', found {type(content).__name__}")
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_one_line(error)}") from None


def _one_line(error: ValidationError) -> str:
    """All problems of a validation as one line, each with the key it concerns."""
    texts = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"])
        match problem["type"]:
            case "extra_forbidden":
                text = f"unknown key '{key}'"
            case "missing":
                text = f"key '{key}' is missing"
            case _:
                message = problem["msg"].removeprefix("Value error, ")
                given = "" if isinstance(problem["input"], dict) else f" = {repr(problem['input'])[:80]}"
                text = f"'{key}'{given}: {message[:1].lower()}{message[1:]}" if key else message
        texts.append(text)
    return "; ".join(texts)
