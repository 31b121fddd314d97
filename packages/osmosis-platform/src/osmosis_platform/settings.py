"""The one settings object: from flags, then `OSMOSIS_PLATFORM_*` variables, then `platform.toml` in the data directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from packaging.version import Version
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

DEFAULT_DATA_DIR = Path("~/.osmosis-platform")
DEFAULT_PORT = 8700
SETTINGS_FILE = "platform.toml"
_DATABASES = {"postgresql", "postgres", "postgresql+psycopg", "sqlite"}


class Settings(BaseSettings):
    """What an administrator can set. Sizes are bytes, times are seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix="OSMOSIS_PLATFORM_", extra="ignore", frozen=True)

    data_dir: Path = Field(
        DEFAULT_DATA_DIR, description="Database, objects, repositories, keys and logs of one machine."
    )
    host: str = Field("127.0.0.1", description="Address to listen on; any but a loopback address needs TLS.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        DEFAULT_PORT, description="Port to listen on; 0 takes a free one."
    )
    public_url: str | None = Field(None, description="How clients reach this platform; default: scheme, host and port.")
    tls_cert: Path | None = Field(None, description="Certificate chain (PEM); with tls_key the platform speaks https.")
    tls_key: Path | None = Field(None, description="Private key (PEM) of tls_cert.")
    allow_plain_http: bool = Field(False, description="Listen beyond loopback without TLS, for example behind a proxy.")
    trusted_proxies: str = Field("", description="Comma-separated addresses whose X-Forwarded-* headers count.")

    database_url: SecretStr | None = Field(None, description="postgresql://...; default: SQLite in data_dir.")
    master_key: SecretStr | None = Field(
        None, validation_alias="OSMOSIS_MASTER_KEY", description="Base64 of the 32-byte key that wraps all others."
    )
    master_key_file: Path | None = Field(
        None,
        validation_alias="OSMOSIS_MASTER_KEY_FILE",
        description="File that holds it; default: data_dir/master.key.",
    )

    blob_store: Literal["files", "s3"] = Field("files", description="Where objects are kept.")
    s3_bucket: str | None = Field(None, description="Bucket of blob_store = s3.")
    s3_prefix: str = Field("", description="Key prefix within the bucket.")
    s3_endpoint: str | None = Field(None, description="URL of an S3-compatible store; default: AWS.")
    s3_public_endpoint: str | None = Field(None, description="The store's URL as clients see it, if another.")
    s3_region: str | None = Field(None, description="Region; credentials come from the AWS variables.")
    url_lifetime_s: int = Field(3600, ge=60, le=604800, description="How long object URLs count.")
    upload_part_bytes: int = Field(
        64 << 20, ge=1024, le=5 << 30, description="Uploads over this size go in parts of it (S3: 5 MiB or more)."
    )

    workers: int = Field(1, ge=0, le=64, description="Worker processes that `up` starts.")
    worker_slots: int = Field(2, ge=1, le=64, description="Jobs that one worker drives at a time.")
    lease_s: float = Field(15.0, gt=0.5, le=600, description="How long a worker may be silent before its job moves on.")

    session_days: int = Field(14, ge=1, le=365, description="How long a browser stays signed in.")
    token_days: int = Field(90, ge=1, le=3650, description="How long a token of `osmosis auth login` counts.")
    require_billing: bool = Field(
        False, description="Whether workspaces need billing marked ready by an administrator."
    )

    deleted_workspace_days: int = Field(
        7, ge=0, le=3650, description="How long a deleted workspace can be brought back before all of it is removed."
    )

    max_dataset_bytes: int = Field(5 << 30, ge=1, description="Largest dataset file.")
    max_body_bytes: int = Field(2 << 20, ge=1024, description="Largest JSON body.")
    max_push_bytes: int = Field(2 << 30, ge=1024, description="Largest pack of one git push or fetch.")
    git_processes: int = Field(8, ge=1, le=256, description="Git processes that serve clients at a time.")
    git_poll_s: int = Field(300, ge=10, description="How often connected remotes are polled.")
    allow_private_remotes: bool = Field(False, description="Whether remotes and webhooks may be in private networks.")

    oidc_issuer: str | None = Field(None, description="Issuer URL of an identity provider; enables sign-in with it.")
    oidc_client_id: str | None = Field(None, description="Our client id there.")
    oidc_client_secret_file: Path | None = Field(None, description="File with the client secret.")

    minimum_client: str | None = Field(None, description="Oldest osmosis-ai that is served; older ones get a 426.")
    deprecated_client: str | None = Field(None, description="Older osmosis-ai than this is told to update soon.")
    recommended_client: str | None = Field(None, description="Older osmosis-ai than this is told of the newer one.")

    log_format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, JSON otherwise.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    metrics_token: SecretStr | None = Field(
        None, description="Bearer token of /metrics, beyond loopback or a public_url."
    )
    otlp_endpoint: str | None = Field(None, description="OTLP/HTTP endpoint for traces (extra `otel`).")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags before variables before the file of the data directory."""
        flags: dict[str, Any] = getattr(init_settings, "init_kwargs", {})
        directory = flags.get("data_dir") or os.environ.get("OSMOSIS_PLATFORM_DATA_DIR") or DEFAULT_DATA_DIR
        path = Path(directory).expanduser() / SETTINGS_FILE
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=path)

    @field_validator("data_dir", "tls_cert", "tls_key", "master_key_file", "oidc_client_secret_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

    @field_validator("database_url")
    @classmethod
    def _database(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value():
            return None
        try:
            parts = urlsplit(value.get_secret_value())
            named = parts.scheme in _DATABASES and (parts.scheme == "sqlite" or bool(parts.path.strip("/")))
            named = named and (parts.port is None or parts.port > 0)
        except ValueError:  # of a port that is none, or brackets that do not close
            named = False
        if not named:  # without the text: it may hold a password
            raise ValueError("write it as postgresql://user:password@host:5432/name (in the password, %40 for @)")
        return value

    @field_validator("minimum_client", "deprecated_client", "recommended_client")
    @classmethod
    def _version(cls, value: str | None) -> str | None:
        return None if value is None else str(Version(value))

    @field_validator("public_url")
    @classmethod
    def _without_slash(cls, value: str | None) -> str | None:
        return None if value is None else value.strip().rstrip("/") or None

    @model_validator(mode="after")
    def _pairs(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together; give both or neither")
        if self.blob_store == "s3" and not self.s3_bucket:
            raise ValueError("blob_store = s3 needs s3_bucket")
        if self.oidc_issuer and not self.oidc_client_id:
            raise ValueError("oidc_issuer needs oidc_client_id")
        return self

    @property
    def base_url(self) -> str:
        """How clients reach this platform, without a trailing slash."""
        if self.public_url:
            return self.public_url
        scheme = "https" if self.tls_cert else "http"
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104 - names of wildcards
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{scheme}://{host}:{self.port}"

    @property
    def sqlalchemy_url(self) -> str:
        """The database as SQLAlchemy names it."""
        if self.database_url is None:
            return f"sqlite:///{self.data_dir / 'platform.sqlite3'}"
        url = self.database_url.get_secret_value()
        for plain in ("postgresql://", "postgres://"):
            if url.startswith(plain):
                return "postgresql+psycopg://" + url.removeprefix(plain)
        return url
