"""Resolve locations: a URI (`s3://bucket/key`, `gs://...`, `hf://datasets/...`, `file:///...`) or a local path."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pafs

URI_CHARACTERS = "!#$%&'()*+,/:;=?@~"  # characters allowed in a URI without escaping, besides letters, digits and `-._`
JOB_COPY = "working_dir_files"  # folder of Ray's copies of submitted folders
STORES = ("s3", "gs")  # schemes of object stores, with one client per bucket
# Waits 25 ms x 2, x 4, ... between retries, 51 s in all; Arrow's default for a URI gives up after 6 s, AWS' standard
# strategy after 100 failures of a process
S3_RETRIES = pafs.AwsDefaultS3RetryStrategy(max_attempts=11)
S3_TEXTS = (
    "region",
    "scheme",
    "endpoint_override",
    "tls_ca_file_path",
)  # options allowed in the query of an S3 location
S3_SWITCHES = ("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "force_virtual_addressing")
# options of a URI that hold credentials
SECRETS = r"sig|[^=&\s]*(?:key|token|secret|signature|password|credential)[^=&\s]*"


def open_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a URI or local path, and the path inside it; ValueError for an unknown scheme."""
    scheme = urlsplit(str(uri)).scheme
    if scheme == "hf":
        from huggingface_hub import HfFileSystem

        return pafs.PyFileSystem(pafs.FSSpecHandler(HfFileSystem())), str(uri).removeprefix("hf://")
    if len(scheme) < 2:  # no scheme (a one-letter scheme is a drive)
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(str(uri)))
    try:
        if scheme in STORES:
            split = urlsplit(str(uri))
            bucket = split.netloc.rpartition("@")[2]
            if ":" in bucket and "@" in split.path:  # refused here, because pyarrow's error quotes a part of the secret
                raise ValueError(f"location {shown(uri)!r}: its credentials hold a '/'; write it as %2F")
            return _client(scheme, split.netloc, split.query), (bucket + unquote(split.path)).rstrip("/")
        return pafs.FileSystem.from_uri(quote(str(uri), safe=URI_CHARACTERS))
    except pa.ArrowInvalid as error:
        raise ValueError(
            shown(f"location {uri!r}: pyarrow does not know this scheme ({error}); use a local path, s3://, ")
            + "gs:// or hf://"
        ) from error


@lru_cache(maxsize=64)
def _client(scheme: str, netloc: str, query: str) -> pafs.FileSystem:
    """Return the client of a bucket, cached per process because each client must connect and fetch credentials."""
    if scheme == "s3":
        return _s3_client(netloc, query)
    return pafs.FileSystem.from_uri(quote(urlunsplit((scheme, netloc, "/", query, "")), safe=URI_CHARACTERS))[0]


def _s3_client(netloc: str, query: str) -> pafs.S3FileSystem:
    """Return the client for a location's bucket, credentials and options; ValueError for an unknown option."""
    credentials, _, bucket = netloc.rpartition("@")
    options: dict[str, Any] = {"allow_delayed_open": True}  # one request for a small file
    for name, value in parse_qsl(query, keep_blank_values=True):
        known = value in ("true", "false") if name in S3_SWITCHES else name in S3_TEXTS
        if not known:
            raise ValueError(
                f"location s3://{bucket}: option {name}={value} is none of {', '.join(S3_TEXTS)}, nor "
                f"{', '.join(S3_SWITCHES)} with true or false"
            )
        options[name] = value == "true" if name in S3_SWITCHES else value
    if credentials:
        key, _, secret = credentials.partition(":")
        options |= {"access_key": unquote(key), "secret_key": unquote(secret)}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        options.setdefault("endpoint_override", endpoint)
    if not options.keys() & {"region", "endpoint_override"}:
        options["region"] = pafs.resolve_s3_region(bucket)
    return pafs.S3FileSystem(retry_strategy=S3_RETRIES, **options)


def is_local(uri: str) -> bool:
    """Return whether a location is on the local filesystem."""
    return isinstance(open_filesystem(uri)[0], pafs.LocalFileSystem)


def absolute(uri: str) -> str:
    """Return a location that is valid in every process: local paths become absolute, URIs stay as they are."""
    return open_filesystem(uri)[1] if is_local(uri) else str(uri)


def lasting(uri: str, option: str, default: str = "") -> str:
    """Return the location of a result, as `absolute` does.

    A job that was submitted to Ray runs in a copy of its folder, which Ray deletes. There the default goes to the
    home folder instead, and ValueError refuses any other relative path. option: names it in the error.
    """
    is_relative = len(urlsplit(uri).scheme) < 2 and not os.path.isabs(os.path.expanduser(uri))
    if JOB_COPY not in Path.cwd().parts or not is_relative:
        return absolute(uri)
    if uri != default:
        raise ValueError(
            f"{option} {uri}: lies in Ray's copy of the job's folder, which Ray deletes; give an absolute path, or a "
            "URI such as s3://BUCKET/NAME"
        )
    return str(Path.home() / "tlm_ray" / uri)


def join(uri: str, *parts: str) -> str:
    """Append path segments to a location, before its query string if it has one."""
    split = urlsplit(str(uri))
    if len(split.scheme) < 2:
        return os.path.join(str(uri), *parts)
    path = "/".join([split.path.rstrip("/"), *parts])
    return urlunsplit(split._replace(path=path))


def without_query(uri: str) -> str:
    """Return a location without its query string; a local path has none, even with a "?" in its name."""
    return str(uri).partition("?")[0] if len(urlsplit(str(uri)).scheme) > 1 else str(uri)


def sibling(uri: str, path: str) -> str:
    """Return the location of `path`, a path on the filesystem of `uri`."""
    split = urlsplit(str(uri))
    if len(split.scheme) < 2:
        return path
    if split.scheme != "hf":  # its paths need no escaping
        path = quote(path)
    if split.scheme == "file":
        return urlunsplit(split._replace(path=path))
    credentials, at, _ = split.netloc.rpartition("@")  # the last one: a password may hold others
    bucket, _, key = path.partition("/")
    return urlunsplit(split._replace(netloc=credentials + at + bucket, path="/" + key))


def without_credentials(uri: str) -> str:
    """Return a location as files keep it: the same for any user, password and options that hold credentials."""
    split = urlsplit(str(uri))
    if len(split.scheme) < 2:
        return str(uri)
    names = re.compile(SECRETS, re.IGNORECASE)
    options = [option for option in split.query.split("&") if not names.fullmatch(option.partition("=")[0])]
    return urlunsplit(split._replace(netloc=split.netloc.rpartition("@")[2], query="&".join(options)))


def all_without_credentials(value: Any) -> Any:
    """Return a record's values with each location as files keep it, see `without_credentials`."""
    if isinstance(value, Mapping):
        return {name: all_without_credentials(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [all_without_credentials(inner) for inner in value]
    return without_credentials(value) if isinstance(value, str) else value


def shown(text: str) -> str:
    """Return a text without the credentials in its URIs, for screens and logs."""
    # up to the last @: a password may contain one; and with a user also a slash or a quote, but no other URI
    without_user = re.sub(r"(?<=://)(?:[^/\s:@]*:(?:(?!://)\S)*|[^/\s'\"]+)@", "***@", text)
    return re.sub(rf"([?&](?:{SECRETS})=)[^&\s'\"]+", r"\1***", without_user, flags=re.IGNORECASE)


def exists(uri: str) -> bool:
    """Return whether a file or folder exists."""
    filesystem, path = open_filesystem(uri)
    return filesystem.get_file_info(path).type != pafs.FileType.NotFound


def absolute_if_there(name: str) -> str:
    """Return an existing folder's location as an absolute one, and anything else, such as a hub name, unchanged."""
    return absolute(name) if name and exists(name) else name
